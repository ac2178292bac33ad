package pull

import (
	"context"
	"fmt"
	"time"
)

// Run returns up the jobs of which nothing is heard any more, and forgets hosts
// that have gone, until ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	look := time.NewTicker(d.cfg.Lost / 4)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		for _, j := range d.silent(time.Now()) {
			d.cfg.Log.Warn("a job's poller is gone", "machine", j.ID.Machine, "job", j.Name, "poller", j.By)
			if err := d.giveUp(j, fmt.Sprintf("nothing was heard of its poller for %s", d.cfg.Lost)); err != nil {
				d.cfg.Log.Error("give up a job", "machine", j.ID.Machine, "err", err)
			}
		}
	}
}

// silent returns the jobs of which nothing was heard for too long, and drops the
// hosts likewise.
func (d *Driver) silent(now time.Time) []*job {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, h := range d.hosts {
		if h.polls == 0 && now.Sub(h.heard) > d.cfg.Lost {
			delete(d.hosts, name)
		}
	}
	var out []*job
	for _, j := range d.jobs {
		if j.phase != running || j.watchers > 0 || now.Sub(j.heard) <= d.cfg.Lost {
			continue
		}
		if h := d.hosts[j.Host]; h != nil { // it was heard of, or has a call open
			continue
		}
		out = append(out, j)
	}
	return out
}
