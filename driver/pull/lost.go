package pull

import (
	"context"
	"fmt"
	"time"
)

// Run gives up jobs without signs of life and removes hosts that have disappeared. It returns
// when ctx ends.
func (d *Driver) Run(ctx context.Context) error {
	look := time.NewTicker(d.cfg.Lost / 4)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
		for _, j := range d.removeSilent(time.Now()) {
			d.cfg.Log.Warn("poller of job lost", "machine", j.ID.Machine, "job", j.Name, "poller", j.By)
			if err := d.giveUp(j, fmt.Sprintf("its poller showed no sign of life for %s", d.cfg.Lost)); err != nil {
				d.cfg.Log.Error("give up job failed", "machine", j.ID.Machine, "err", err)
			}
		}
	}
}

// removeSilent removes hosts without a recent sign of life, and returns the jobs whose pollers have not shown one
// either.
func (d *Driver) removeSilent(now time.Time) []*job {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, h := range d.hosts {
		if h.polls == 0 && now.Sub(h.lastSeen) > d.cfg.Lost {
			delete(d.hosts, name)
		}
	}
	var out []*job
	for _, j := range d.jobs {
		if j.phase != running || j.watchers > 0 || now.Sub(j.lastSeen) <= d.cfg.Lost {
			continue
		}
		if h := d.hosts[j.Host]; h != nil { // keep the job if its host was heard recently or has an open call
			continue
		}
		out = append(out, j)
	}
	return out
}
