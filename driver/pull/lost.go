package pull

import (
	"context"
	"fmt"
	"time"
)

// Run removes hosts that have not sent a heartbeat for Config.Lost, and gives up jobs for which no heartbeat has
// arrived for that long. It returns when ctx is done.
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
			d.cfg.Log.Warn("job's poller lost", "machine", j.ID.Machine, "job", j.Name, "poller", j.By)
			if err := d.giveUp(j, fmt.Sprintf("no heartbeat from its poller for %s", d.cfg.Lost)); err != nil {
				d.cfg.Log.Error("give up job failed", "machine", j.ID.Machine, "err", err)
			}
		}
	}
}

// removeSilent removes hosts that have not sent a heartbeat for Config.Lost. It returns the running jobs that are
// considered lost: their pollers have not sent a heartbeat for Config.Lost, and their hosts, if they have any, are no
// longer registered.
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
		if h := d.hosts[j.Host]; h != nil { // the host has sent a heartbeat
			continue
		}
		out = append(out, j)
	}
	return out
}
