// Package publish publishes to the view what a worker has, and does what the view
// asks of the worker. Both run beside all other work: no caller waits for the
// view, and the worker's store wins wherever the two differ (invariant 8).
package publish

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

const (
	// Batch is how many machines are in one update.
	Batch = 128
	// Events is how many events of a machine go into the view.
	Events = 2
	// CheckEvery is the time between two looks at whether the view has all,
	// and nothing else.
	CheckEvery = 5 * time.Minute
	// AgainMost is the longest wait after a failure of the view: the wait
	// doubles from againFirst.
	AgainMost  = 5 * time.Second
	againFirst = 100 * time.Millisecond

	// The changes of a machine come in bursts: its start is three of them in
	// some milliseconds. Waiting for the others makes them one, and halves the
	// work; the view has them that much later.
	gather = 50 * time.Millisecond
)

// Images are the host's images.
type Images interface {
	// List returns every image, those being pulled too.
	List(ctx context.Context) ([]bourse.Image, error)
	// Changed returns a channel of capacity one that holds a token when List
	// may have changed. It is always the same channel.
	Changed() <-chan struct{}
}

// Config says what a Publisher publishes, and where.
type Config struct {
	View   View                                  // required
	Images Images                                // nil: the worker has none
	Facts  func(*store.Tx) (bourse.Facts, error) // what the worker says of itself, as far as it costs next to nothing
}

// Publisher publishes to the view what the worker has. What it could not
// publish yet it reads from the store when it can. The fields below leaving
// belong to the goroutine of Run.
type Publisher struct {
	state   *state.State
	view    View
	host    Images
	facts   func(*store.Tx) (bourse.Facts, error)
	box     *outbox
	leaving atomic.Bool // takes no more orders

	published map[bourse.MachineID]struct{} // machines that the view may have
	volumes   map[bourse.VolumeID]struct{}  // the same of volumes
	images    shownImages
	shown     shownFacts
	failures  int // in a row
}

// New makes a Publisher that follows what changes in s. It starts nothing.
func New(s *state.State, cfg Config) *Publisher {
	p := &Publisher{
		state: s, view: cfg.View, host: cfg.Images, facts: cfg.Facts, box: newOutbox(),
		published: map[bourse.MachineID]struct{}{}, volumes: map[bourse.VolumeID]struct{}{},
	}
	s.Machines.Follow(p.box.add)
	s.Volumes.Follow(p.box.addVolume)
	return p
}

// Run publishes everything, then what changes, until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	check := time.NewTicker(CheckEvery)
	defer check.Stop()
	facts := time.NewTicker(factsEvery) // some change without a machine, and some were held back
	defer facts.Stop()
	lost := p.view.Lost()
	p.box.addAll()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			lost = p.view.Lost() // first: it may be lost again while we publish
			p.box.addAll()
		case <-check.C:
			p.box.addAll()
		case <-facts.C:
		case <-p.imagesChanged():
			p.images.due = true
		case <-p.box.wake:
			state.Rest(ctx, gather)
		}
		select {
		case <-lost: // now rather than next time: a new life of ours is to begin with all that we have
			lost = p.view.Lost()
			p.box.addAll()
		default:
		}
		p.deliver(ctx)
	}
}

// deliver publishes what the outbox holds; what it cannot publish goes back.
func (p *Publisher) deliver(ctx context.Context) {
	changes := p.box.take()
	err := p.send(ctx, &changes)
	if err == nil {
		for _, wait := range changes.waits {
			close(wait)
		}
		if p.failures > 0 {
			p.state.Log.Info("publish to view succeeds again", "attempts", p.failures)
		}
		p.failures = 0
		return
	}
	p.box.put(changes)
	if ctx.Err() != nil {
		return
	}
	if p.failures++; p.failures == 1 { // then there is nothing new to say
		p.state.Log.Warn("publish to view failed", "err", err)
	}
	state.Rest(ctx, backoff(p.failures))
}

// backoff is how long to wait after the n-th failure in a row.
func backoff(n int) time.Duration {
	d := againFirst
	for range n - 1 {
		if d *= 2; d >= AgainMost {
			return AgainMost
		}
	}
	return d
}

func (p *Publisher) send(ctx context.Context, out *changes) error {
	if out.unsure {
		// What was on its way when it was noted is there when this is.
		if err := p.state.Store.Update(ctx, func(*store.Tx) error { return nil }); err != nil {
			return err
		}
	}
	if out.all {
		return p.republish(ctx)
	}
	var u Update
	if err := p.addFacts(&u, false); err != nil {
		return err
	}
	if err := p.publishMachines(ctx, u, slices.Sorted(maps.Keys(out.ids))); err != nil {
		return err
	}
	if err := p.publishVolumes(ctx, slices.Sorted(maps.Keys(out.volumes))); err != nil {
		return err
	}
	return p.publishImages(ctx)
}

// publishMachines publishes machines as the store has them now, with what u
// says already.
func (p *Publisher) publishMachines(ctx context.Context, u Update, ids []bourse.MachineID) error {
	if len(ids) == 0 {
		return p.publish(ctx, u)
	}
	for batch := range slices.Chunk(ids, Batch) {
		if err := p.read(&u, batch); err != nil {
			return err
		}
		if err := p.publish(ctx, u); err != nil {
			return err
		}
		u = Update{}
	}
	return nil
}

// read adds machines to u as the store has them. One that has come and gone
// before it was published is left out.
func (p *Publisher) read(u *Update, ids []bourse.MachineID) error {
	return p.state.Store.View(func(tx *store.Tx) error {
		for _, id := range ids {
			m, err := tx.Machine(id)
			if bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && m.State == bourse.StateDestroyed {
				if _, ok := p.published[id]; ok {
					u.Gone = append(u.Gone, id)
				}
				continue
			}
			if err != nil {
				return err
			}
			if m.LastEvents, err = state.ReadEvents(tx, id, Events); err != nil {
				return err
			}
			u.Machines = append(u.Machines, m)
		}
		return nil
	})
}

// publish hands u to the view.
func (p *Publisher) publish(ctx context.Context, u Update) error {
	if u.empty() {
		return nil
	}
	for i := range u.Machines {
		p.published[u.Machines[i].ID] = struct{}{} // even if its answer is lost
	}
	for i := range u.Volumes {
		p.volumes[u.Volumes[i].ID] = struct{}{}
	}
	for i := range u.Images {
		if digest := u.Images[i].Ref.Digest; p.images.published[digest].Ref.Digest == "" {
			p.images.published[digest] = bourse.Image{}
		}
	}
	if err := offer(ctx, p.state.Log, p.view, u); err != nil {
		return err
	}
	for _, id := range u.Gone {
		delete(p.published, id)
	}
	for _, id := range u.GoneVolumes {
		delete(p.volumes, id)
	}
	p.noteImages(&u)
	p.shown.note(&u)
	return nil
}

// Leave publishes that the worker takes no more orders, and returns when the
// view has that, or with the error of ctx. It is called during Run.
func (p *Publisher) Leave(ctx context.Context) error {
	p.leaving.Store(true)
	return p.Await(ctx)
}

// Await returns when the view has all that changed before the call.
func (p *Publisher) Await(ctx context.Context) error {
	select {
	case <-p.box.await():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
