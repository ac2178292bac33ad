package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// poller is an open call to Next.
type poller struct {
	host *host     // nil if the caller did not name a host; such a poller accepts one job of any size
	got  chan *job // receives the poller's offer; capacity 1
}

// Next waits for a job and offers it to the caller, which must then claim the job. hostName is ""
// or the name of a registered host. Next returns ok=false if ctx is done first, with one exception:
// if a job has just been offered to the caller when ctx's deadline passes, Next still returns the
// job. If ctx is canceled at that point, Next assumes that the caller has disconnected, and the job
// is offered to another poller. Errors: not_found for an unknown host, forbidden if the host
// belongs to another ticket.
func (d *Driver) Next(ctx context.Context, hostName string, ticket Ticket) (j Job, ok bool, err error) {
	d.mu.Lock()
	h, err := d.hostNamed(hostName, ticket)
	if err != nil {
		d.mu.Unlock()
		return Job{}, false, err
	}
	if h != nil {
		h.polls++
		defer d.polled(h)
	}
	if x := d.dueFor(h); x != nil && ctx.Err() == nil {
		x.due, x.to, x.at = false, h, time.Now()
		j = x.description()
		d.mu.Unlock()
		return j, true, nil
	}
	p := &poller{host: h, got: make(chan *job, 1)}
	d.pollers = append(d.pollers, p)
	d.mu.Unlock()

	select {
	case x := <-p.got:
		return x.description(), true, nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.pollers, p); i >= 0 {
		d.pollers = slices.Delete(d.pollers, i, i+1)
		return Job{}, false, nil
	}
	x := <-p.got // p was removed from the list, so an offer has been sent to it
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return x.description(), true, nil
	}
	if x.phase == offered {
		d.reoffer(x)
	}
	return Job{}, false, nil
}

// polled records that a host's call to Next has ended.
func (d *Driver) polled(h *host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.polls--
	h.lastSeen = time.Now()
}

// offer removes p from the waiting pollers and offers job j to p. mu must be held.
func (d *Driver) offer(j *job, p *poller) {
	i := slices.Index(d.pollers, p)
	d.pollers = slices.Delete(d.pollers, i, i+1)
	j.to, j.due, j.at = p.host, false, time.Now()
	p.got <- j
}

// reoffer offers the unclaimed job j to another waiting poller. If no suitable poller is waiting, j
// will be offered to the next suitable caller of Next. mu must be held.
func (d *Driver) reoffer(j *job) {
	j.to, j.due = nil, true
	if p := d.pick(j.Size); p != nil {
		d.offer(j, p)
	}
}

// dueFor returns a job that fits on the host h and is waiting for the next suitable caller of Next.
// It returns nil if there is no such job. If h is nil, every job fits. mu must be held.
func (d *Driver) dueFor(h *host) *job {
	for _, j := range d.offers {
		if j.due && j.phase == offered && (h == nil || d.free(h).holds(j.Size)) {
			return j
		}
	}
	return nil
}

// pick selects the poller to which a job of size need is offered. It prefers waiting hosts, and
// among them the one on which the job leaves the least capacity unused (see Size.waste). If the job
// does not fit on any waiting host, pick returns the longest-waiting poller without a host, or nil
// if there is none. mu must be held.
func (d *Driver) pick(need Size) *poller {
	var best, first *poller
	least := 0.0
	for _, p := range d.pollers {
		if p.host == nil {
			if first == nil {
				first = p
			}
			continue
		}
		free := d.free(p.host)
		if !free.holds(need) {
			continue
		}
		if waste := free.less(need).waste(p.host.size); best == nil || waste < least {
			best, least = p, waste
		}
	}
	if best != nil {
		return best
	}
	return first
}

// Room returns nil if a waiting poller could run a task with these limits. Otherwise, it returns a
// refusal.
func (d *Driver) Room(limits driver.Limits) *bourse.Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	need := sizeOf(limits)
	if d.pick(need) != nil {
		return nil
	}
	return &bourse.Refusal{Reason: bourse.RefusedResource, Resource: "pollers", Wanted: 1, Detail: d.noRoom(need)}
}

func (d *Driver) noRoom(need Size) string {
	if len(d.pollers) == 0 {
		return "no poller is waiting for work"
	}
	return fmt.Sprintf("no poller has room for %d thousandths of a CPU, %d MiB of memory and %d MiB of disk", need.CPU, need.Memory, need.Disk)
}
