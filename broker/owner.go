package broker

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// target is a machine and the worker that owns it.
type target struct {
	worker bourse.Member
	id     bourse.MachineID
}

// owner finds the worker of the path's machine by the machine's id alone.
// Codes: not_found, unavailable (the worker is lost).
func (b *Broker) owner(r *request) (target, error) {
	id := bourse.MachineID(r.PathValue("machine"))
	tag := id.Tag()
	if tag == 0 {
		return target{}, errNoMachine()
	}
	worker, ok := b.Directory.ByTag(tag)
	if !ok {
		return target{}, b.errLost(r, id)
	}
	return target{worker, id}, nil
}

// errLost is the error of an id whose tag belongs to no member: the machine of
// a lost worker, or one that never was. Which of a lost worker's ids are
// machines, only that worker knows.
func (b *Broker) errLost(r *request, id bourse.MachineID) error {
	l, ok := b.copyOf(r.Context(), id)
	if absent, known := b.absentTag(id.Tag()); !ok && known {
		return errAbsent(absent)
	}
	if !ok || l.App != r.app() {
		return errNoMachine()
	}
	if l.HeardAt.IsZero() {
		return bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached", l.Worker)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached: it was last heard from at %s",
		l.Worker, l.HeardAt.UTC().Format(time.RFC3339))
}

// machineOf reads the path's machine from its owner. A machine of another app
// is not found. Codes: not_found, unavailable.
func (b *Broker) machineOf(r *request) (target, bourse.Machine, error) {
	return b.machineWithin(r, b.Patience)
}

func (b *Broker) machineWithin(r *request, patience time.Duration) (target, bourse.Machine, error) {
	to, err := b.owner(r)
	if err != nil {
		return to, bourse.Machine{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	m, err := b.Workers.Machine(ctx, to.worker, to.id)
	if err != nil {
		return to, m, workerError(r.Context(), to.worker.ID, reading, err)
	}
	b.owners.remember(m.ID, m.App)
	if m.App != r.app() {
		return to, m, errNoMachine()
	}
	b.fresh.note(&m)
	return to, m, nil
}

// targetOf is machineOf for those who need no more than to know that the
// machine is of the path's app, which is usually remembered.
func (b *Broker) targetOf(r *request) (target, error) {
	to, err := b.owner(r)
	if err != nil {
		return to, err
	}
	if app, ok := b.owners.app(to.id); ok {
		if app != r.app() {
			return to, errNoMachine()
		}
		return to, nil
	}
	to, _, err = b.machineOf(r)
	return to, err
}

// maxOwners bounds what is remembered; past it the memory starts anew.
const maxOwners = 1 << 16

// owners remembers which app a machine is of, or a volume. That never changes,
// so what is remembered is never wrong, and forgetting costs one more question.
type owners[K ~string] struct {
	mu   sync.Mutex
	apps map[K]bourse.AppName
}

func newOwners[K ~string]() *owners[K] { return &owners[K]{apps: map[K]bourse.AppName{}} }

func (o *owners[K]) app(id K) (bourse.AppName, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	app, ok := o.apps[id]
	return app, ok
}

func (o *owners[K]) remember(id K, app bourse.AppName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.apps) >= maxOwners {
		clear(o.apps)
	}
	o.apps[id] = app
}

// verbPatience bounds a call that may wait for a program to end: the longest
// stop timeout and some.
const verbPatience = bourse.MaxStopTimeout + 30*time.Second
