package worker

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

const (
	// The changes of a machine come in bursts: its start is three of them in
	// some milliseconds. Waiting for the others makes them one, and halves the
	// work; others hear of it that much later.
	publishGather = 50 * time.Millisecond
	publishBatch  = 128             // machines in one update
	publishCheck  = 5 * time.Minute // between two looks at whether the view has all, and nothing else
	publishEvents = 2               // of a machine that go into the view

	// Patience with a view that fails doubles from first to most.
	publishAgainFirst = 100 * time.Millisecond
	publishAgainMost  = 5 * time.Second
)

// publisher tells the view what the worker has, beside all other work: nobody
// waits for it, and what it has not managed to tell yet it reads from the
// store when it does. What stands below leaving belongs to the goroutine of
// run.
type publisher struct {
	w       *Worker
	view    View
	box     *outbox
	leaving atomic.Bool // takes no more orders

	told     map[bourse.MachineID]struct{} // machines that the view may have
	volumes  map[bourse.VolumeID]struct{}  // the same of volumes
	images   shownImages
	said     said
	failures int // in a row
}

func newPublisher(w *Worker, view View) *publisher {
	return &publisher{w: w, view: view, box: newOutbox(), told: map[bourse.MachineID]struct{}{}, volumes: map[bourse.VolumeID]struct{}{}}
}

// run publishes everything, then what changes, until ctx ends.
func (p *publisher) run(ctx context.Context) error {
	check := time.NewTicker(publishCheck)
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
			p.w.rest(ctx, publishGather)
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
func (p *publisher) deliver(ctx context.Context) {
	parcel := p.box.take()
	err := p.send(ctx, &parcel)
	if err == nil {
		for _, wait := range parcel.waits {
			close(wait)
		}
		if p.failures > 0 {
			p.w.log.Info("the view takes what is published again", "attempts", p.failures)
		}
		p.failures = 0
		return
	}
	p.box.put(parcel)
	if ctx.Err() != nil {
		return
	}
	if p.failures++; p.failures == 1 { // then there is nothing new to say
		p.w.log.Warn("publish to the view", "err", err)
	}
	p.w.rest(ctx, publishBackoff(p.failures))
}

// publishBackoff is how long to wait after the n-th failure in a row.
func publishBackoff(n int) time.Duration {
	d := publishAgainFirst
	for range n - 1 {
		if d *= 2; d >= publishAgainMost {
			return publishAgainMost
		}
	}
	return d
}

func (p *publisher) send(ctx context.Context, out *parcel) error {
	if out.unsure {
		// What was on its way when it was noted is there when this is.
		if err := p.w.store.Update(ctx, func(*store.Tx) error { return nil }); err != nil {
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
func (p *publisher) publishMachines(ctx context.Context, u Update, ids []bourse.MachineID) error {
	if len(ids) == 0 {
		return p.publish(ctx, u)
	}
	for batch := range slices.Chunk(ids, publishBatch) {
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
// before the view heard of it is not worth a word.
func (p *publisher) read(u *Update, ids []bourse.MachineID) error {
	return p.w.store.View(func(tx *store.Tx) error {
		for _, id := range ids {
			m, err := tx.Machine(id)
			if bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && m.State == bourse.StateDestroyed {
				if _, ok := p.told[id]; ok {
					u.Gone = append(u.Gone, id)
				}
				continue
			}
			if err != nil {
				return err
			}
			if m.LastEvents, err = readEvents(tx, id, publishEvents); err != nil {
				return err
			}
			u.Machines = append(u.Machines, m)
		}
		return nil
	})
}

// publish hands u to the view.
func (p *publisher) publish(ctx context.Context, u Update) error {
	if u.empty() {
		return nil
	}
	for i := range u.Machines {
		p.told[u.Machines[i].ID] = struct{}{} // even if we never hear that it has them
	}
	for i := range u.Volumes {
		p.volumes[u.Volumes[i].ID] = struct{}{}
	}
	for i := range u.Images {
		if digest := u.Images[i].Ref.Digest; p.images.told[digest].Ref.Digest == "" {
			p.images.told[digest] = bourse.Image{}
		}
	}
	if err := offer(ctx, p.w.log, p.view, u); err != nil {
		return err
	}
	for _, id := range u.Gone {
		delete(p.told, id)
	}
	for _, id := range u.GoneVolumes {
		delete(p.volumes, id)
	}
	p.noteImages(&u)
	p.said.note(&u)
	return nil
}

// Leave tells the view that the worker takes no more orders, and returns when
// the view has heard it, or with the error of ctx. It is called during Run.
func (w *Worker) Leave(ctx context.Context) error {
	if w.publisher == nil {
		return nil
	}
	w.publisher.leaving.Store(true)
	return w.published(ctx)
}

// published waits until the view has all that has changed before the call.
func (w *Worker) published(ctx context.Context) error {
	if w.publisher == nil {
		return nil
	}
	select {
	case <-w.publisher.box.await():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
