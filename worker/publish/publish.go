// Package publish publishes a worker's records to the view, and carries out the requests
// that the worker finds there. Both run in the background: no operation waits for the
// view. Wherever the view and the worker's store differ, the store wins (invariant 8).
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
	// Batch is the maximum number of machines in one update.
	Batch = 128
	// Events is the maximum number of events that are published with a machine. Only the latest events are
	// published.
	Events = 2
	// CheckInterval is the interval at which the whole store is published again. Rows that the store does not contain
	// are then removed from the view.
	CheckInterval = 5 * time.Minute
	// MaxRetryDelay is the maximum delay after a failed call to the view. The delay starts at minRetryDelay and
	// doubles with each failure.
	MaxRetryDelay = 5 * time.Second
	minRetryDelay = 100 * time.Millisecond

	// batchDelay is how long the publisher waits for more changes before it publishes. Changes to a machine occur in
	// bursts: a start alone causes three within milliseconds. Publishing them together halves the work.
	batchDelay = 50 * time.Millisecond
)

// Images lists the host's images.
type Images interface {
	// List returns all images, including those that are being pulled.
	List(ctx context.Context) ([]bourse.Image, error)
	// Changed returns a channel of capacity one that contains a token if the result of List may have changed. Every
	// call returns the same channel.
	Changed() <-chan struct{}
}

// Config configures a Publisher.
type Config struct {
	View   View                                  // the view to publish to; required
	Images Images                                // nil if the worker has no images
	Facts  func(*store.Tx) (bourse.Facts, error) // returns the worker's facts, except those that are expensive to compute
}

// Publisher publishes the worker's records to the view. It remembers only the ids of changed records, and reads the
// records when it publishes them. Only the goroutine that calls Run may use the fields from published on.
type Publisher struct {
	state   *state.State
	view    View
	host    Images
	facts   func(*store.Tx) (bourse.Facts, error)
	box     *outbox
	leaving atomic.Bool // set once the worker no longer accepts orders

	published map[bourse.MachineID]struct{} // machines that the view may contain
	volumes   map[bourse.VolumeID]struct{}  // volumes that the view may contain
	images    publishedImages
	shown     publishedFacts
	failures  int // number of consecutive failures
}

// New returns a Publisher for the records in s. It does not publish anything until Run is called.
func New(s *state.State, cfg Config) *Publisher {
	p := &Publisher{
		state: s, view: cfg.View, host: cfg.Images, facts: cfg.Facts, box: newOutbox(),
		published: map[bourse.MachineID]struct{}{}, volumes: map[bourse.VolumeID]struct{}{},
	}
	s.Machines.Follow(p.box.add)
	s.Volumes.Follow(p.box.addVolume)
	return p
}

// Run publishes all records, and then publishes each change, until ctx is done.
func (p *Publisher) Run(ctx context.Context) error {
	check := time.NewTicker(CheckInterval)
	defer check.Stop()
	facts := time.NewTicker(factsInterval) // facts may change even if no machine does, or their publication may have been delayed
	defer facts.Stop()
	lost := p.view.RowsLost()
	p.box.addAll()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			lost = p.view.RowsLost() // get the new channel before publishing, because the view may be lost again in the meantime
			p.box.addAll()
		case <-check.C:
			p.box.addAll()
		case <-facts.C:
		case <-p.imagesChanged():
			p.images.due = true
		case <-p.box.wake:
			state.Sleep(ctx, batchDelay)
		}
		select {
		case <-lost: // mark all records as changed before publishing, so that the first update of a new epoch contains all of them
			lost = p.view.RowsLost()
			p.box.addAll()
		default:
		}
		p.publishChanges(ctx)
	}
}

// publishChanges publishes the changes in the outbox. If that fails, it puts them back.
func (p *Publisher) publishChanges(ctx context.Context) {
	changes := p.box.take()
	err := p.send(ctx, &changes)
	if err == nil {
		for _, wait := range changes.waits {
			close(wait)
		}
		if p.failures > 0 {
			p.state.Log.Info("publish to view succeeded again", "attempts", p.failures)
		}
		p.failures = 0
		return
	}
	p.box.putBack(changes)
	if ctx.Err() != nil {
		return
	}
	if p.failures++; p.failures == 1 { // log only the first of several failures
		p.state.Log.Warn("publish to view failed", "err", err)
	}
	state.Sleep(ctx, backoff(p.failures))
}

// backoff returns the delay after the n-th consecutive failure.
func backoff(n int) time.Duration {
	d := minRetryDelay
	for range n - 1 {
		if d *= 2; d >= MaxRetryDelay {
			return MaxRetryDelay
		}
	}
	return d
}

func (p *Publisher) send(ctx context.Context, out *changes) error {
	if out.unsure {
		// Once this empty transaction is durable, so are all changes that were submitted
		// before it.
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

// publishMachines publishes u together with the current records of the machines in ids.
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

// read adds the current records of the machines in ids to u. It leaves out machines that were destroyed before they
// were ever published.
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

// publish sends u to the view, and records which machines and volumes the view may now
// contain.
func (p *Publisher) publish(ctx context.Context, u Update) error {
	if u.empty() {
		return nil
	}
	for i := range u.Machines {
		p.published[u.Machines[i].ID] = struct{}{} // the view may contain the machine even if the call to Publish failed
	}
	for i := range u.Volumes {
		p.volumes[u.Volumes[i].ID] = struct{}{}
	}
	for i := range u.Images {
		if digest := u.Images[i].Ref.Digest; p.images.published[digest].Ref.Digest == "" {
			p.images.published[digest] = bourse.Image{}
		}
	}
	if err := publishAccepted(ctx, p.state.Log, p.view, u); err != nil {
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

// Leave announces in the view that the worker no longer accepts orders. It returns nil once the view contains the
// announcement, or ctx's error if ctx is done first. It must be called while Run is running.
func (p *Publisher) Leave(ctx context.Context) error {
	p.leaving.Store(true)
	return p.Await(ctx)
}

// Await waits until the view contains all changes that were made before the call. If ctx is done first, it returns
// ctx's error.
func (p *Publisher) Await(ctx context.Context) error {
	select {
	case <-p.box.await():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
