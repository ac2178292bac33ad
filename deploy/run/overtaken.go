package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// ErrOvertaken is in the chain of the error of a run that found that another had taken the lease of
// one of its machines, which it had held: it was suspended, or cut off, for longer than a lease lasts.
// What such a run had done is not undone: the other has planned with it.
var ErrOvertaken = errors.New("another has overtaken this one")

// overtake notes that another has had a machine, and ends the run: nothing of it begins any more. It
// is called with l.mu held.
func (l *leases) overtake(id bourse.MachineID, cause error) error {
	err := &bourse.Error{
		Code: bourse.CodeConflict, Message: "another has overtaken this one, the lease of machine " + string(id) + " was lost: " + bourse.MessageOf(cause), Err: ErrOvertaken,
	}
	if l.taken == nil {
		l.taken = err
		l.r.fail(err)
	}
	return err
}

// overtaken returns why nothing may be undone; nil when all may.
func (l *leases) overtaken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken
}

// fresh makes sure that a machine's lease has not ended unnoticed, as when this process was suspended:
// before it is extended nothing is asked of the machine, which others may have changed.
func (l *leases) fresh(ctx context.Context, id bourse.MachineID) error {
	late := func() (*lease, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		one := l.held[id]
		return one, one != nil && one.nonce != "" && !one.gone && one.valid.Err() == nil && time.Now().After(one.until)
	}
	one, ended := late()
	if !ended {
		return nil
	}
	l.extend(ctx, one)
	if one.valid.Err() != nil {
		return context.Cause(one.valid)
	}
	if _, ended := late(); ended {
		return bourse.Errorf(bourse.CodeUnavailable, "the lease of machine %s has ended, and could not be extended", id)
	}
	return nil
}

// allFresh finds out whether another has had any of the machines that are held.
func (l *leases) allFresh(ctx context.Context) {
	var group sync.WaitGroup
	for _, one := range l.list() {
		group.Go(func() { _ = l.fresh(ctx, one.machine) }) // what has been taken is noted; a worker that is silent is found out by its steps
	}
	group.Wait()
}

// ours reports CodeConflict when a machine whose lease was lost, and is held again, has a version that is
// neither what this run found nor what it made: another has had it meanwhile.
func (l *leases) ours(id bourse.MachineID, now bourse.InstanceID) error {
	r := l.r
	known := []bourse.InstanceID{r.plan.Seen[id].Instance, r.madeOf(id).instance}
	unknown := false
	for i := range r.plan.Steps {
		if r.machineOf(i) == id {
			p := r.get(i)
			known = append(known, r.plan.Steps[i].Instance, p.instance)
			unknown = unknown || p.unknown
		}
	}
	found := false
	for _, v := range known {
		if v == now {
			return nil
		}
		found = found || v != ""
	}
	if unknown || !found || now == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overtake(id, bourse.Errorf(bourse.CodeConflict, "its version is %s, which is not of this run", now))
}

// acts is [runner.acted] for a request that changes a machine: it is not to be sent when the machine's lease is lost.
func (l *leases) acts(ctx context.Context, i int, id bourse.MachineID) error {
	if err := l.fresh(ctx, id); err != nil {
		return err
	}
	l.r.acted(i)
	return nil
}
