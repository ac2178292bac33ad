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
	if !ok || !r.reaches(ownerOf(&l.Machine)) {
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
	b.owners.remember(m.ID, ownerOf(&m))
	if !r.reaches(ownerOf(&m)) {
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
	if of, ok := b.owners.of(to.id); ok {
		if !r.reaches(of) {
			return to, errNoMachine()
		}
		return to, nil
	}
	to, _, err = b.machineOf(r)
	return to, err
}

// maxOwners bounds what is remembered; past it the memory starts anew.
const maxOwners = 1 << 16

// owner is what a record says of the app that it belongs to; see
// [bourse.App.Owns].
type owner struct {
	app  bourse.AppName
	id   string
	made time.Time // the record
}

func ownerOf(m *bourse.Machine) owner { return owner{m.App, m.AppID, m.CreatedAt} }

func ownerOfVolume(v *bourse.Volume) owner { return owner{v.App, v.AppID, v.CreatedAt} }

// owners remembers which app a machine is of, or a volume. That never changes,
// so what is remembered is never wrong, and forgetting costs one more question.
type owners[K ~string] struct {
	mu   sync.Mutex
	byID map[K]owner
}

func newOwners[K ~string]() *owners[K] { return &owners[K]{byID: map[K]owner{}} }

func (o *owners[K]) of(id K) (owner, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of, ok := o.byID[id]
	return of, ok
}

func (o *owners[K]) remember(id K, of owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.byID) >= maxOwners {
		clear(o.byID)
	}
	o.byID[id] = of
}

// verbPatience bounds a call that may wait for a program to end: the longest
// stop timeout and some.
const verbPatience = bourse.MaxStopTimeout + 30*time.Second
