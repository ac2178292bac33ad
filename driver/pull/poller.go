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

// poller is one open call of Next.
type poller struct {
	host *host     // nil: it has no name, and room for one job of any size
	got  chan *job // what it is offered; has room for one
}

// Next waits until there is a job for the caller, and gives it: an offer, which
// is the caller's once it has been claimed. host is "" or the name of a
// registered host. ok is false when ctx has ended before there was one. When
// ctx was cancelled the caller is taken to have left, and what it was about to
// be offered goes to another; a deadline that has passed only ends the wait.
// Errors: not_found, an unknown host; forbidden, one with another ticket.
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
		j = x.told()
		d.mu.Unlock()
		return j, true, nil
	}
	p := &poller{host: h, got: make(chan *job, 1)}
	d.pollers = append(d.pollers, p)
	d.mu.Unlock()

	select {
	case x := <-p.got:
		return x.told(), true, nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.pollers, p); i >= 0 {
		d.pollers = slices.Delete(d.pollers, i, i+1)
		return Job{}, false, nil
	}
	x := <-p.got // the one that took it from the list has put it there
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return x.told(), true, nil
	}
	if x.phase == offered {
		d.reoffer(x)
	}
	return Job{}, false, nil
}

// polled notes that a host's call has ended.
func (d *Driver) polled(h *host) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.polls--
	h.heard = time.Now()
}

// offer takes p from those who wait and hands it j. Its caller holds mu.
func (d *Driver) offer(j *job, p *poller) {
	i := slices.Index(d.pollers, p)
	d.pollers = slices.Delete(d.pollers, i, i+1)
	j.to, j.due, j.at = p.host, false, time.Now()
	p.got <- j
}

// reoffer offers j, which no one has claimed, to another who waits, or to the
// next who comes. Its caller holds mu.
func (d *Driver) reoffer(j *job) {
	j.to, j.due = nil, true
	if p := d.pick(j.Size); p != nil {
		d.offer(j, p)
	}
}

// dueFor returns a job that waits for the next poller and is for one at h. Its
// caller holds mu.
func (d *Driver) dueFor(h *host) *job {
	for _, j := range d.offers {
		if j.due && j.phase == offered && (h == nil || d.free(h).holds(j.Size)) {
			return j
		}
	}
	return nil
}

// pick returns who is to be offered a job of a size: of the hosts that wait the
// one that it fits best, else who has waited longest without a name; nil when
// no one can. Its caller holds mu.
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

// Room tells why a task with these limits would be refused now; nil when it
// would be offered to somebody.
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
		return "no poller waits for work"
	}
	return fmt.Sprintf("no poller has room for %d thousandths of a cpu, %d MiB of memory and %d MiB of disk", need.CPU, need.Memory, need.Disk)
}
