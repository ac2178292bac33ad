package machines

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// ImageHost has the images of a worker. Errors: not_found, invalid
// and insufficient_capacity are final, unavailable may pass.
type ImageHost interface {
	// Resolve returns the reference with the digest that a name stands for now,
	// once its registry has shown that to the organisation. An organisation of
	// "" has no credentials of its own.
	Resolve(ctx context.Context, org, name string) (bourse.ImageRef, error)
	// Pull returns when the image is on the host, ready to be started. All
	// who ask for one image at the same time share one pull. Only an
	// organisation for which the reference was resolved may ask.
	Pull(ctx context.Context, org string, ref bourse.ImageRef, progress func(bourse.Image)) (bourse.Image, error)
	// Has reports whether the image of a resolved reference is ready.
	Has(ref bourse.ImageRef) bool
	// Missing returns how many bytes would have to be pulled for an organisation
	// to run a name; known is false for one that was never shown to it.
	Missing(org, name string) (bytes int64, known bool)
	// Used notes that a machine was started from an image.
	Used(digest string)
}

// images manages the images of a worker's machines.
type images struct {
	ImageHost // nil: the worker has none

	state *state.State
	use   use

	coming sync.Map // of bourse.MachineID: the bourse.Image that is being pulled for it
}

// errNoImages is the error of a worker that has no images.
var errNoImages = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without a driver of images")

// newImages makes the images of a worker's machines; host is nil for none. It starts
// nothing.
func newImages(s *state.State, host ImageHost) *images {
	i := &images{state: s, ImageHost: host}
	if host != nil {
		s.Machines.Follow(func(_ bourse.MachineID, unsure bool) {
			if !unsure {
				i.use.changed()
			}
		})
	}
	return i
}

// Coming returns how far the pull has come that a machine waits for.
func (i *images) Coming(id bourse.MachineID) (bourse.Image, bool) {
	image, ok := i.coming.Load(id)
	if !ok {
		return bourse.Image{}, false
	}
	return image.(bourse.Image), true
}

// Drop ends the hold of an image that was pulled for a machine, once the machine
// is recorded with it or never will be.
func (i *images) Drop(id bourse.MachineID) { i.use.drop(id) }

// use knows which images may not be removed: those of machines that are
// not destroyed, and those that a machine is about to be recorded with.
type use struct {
	mu   sync.Mutex
	held map[bourse.MachineID]string // guarded by mu; digests, until they are recorded
	used map[string]struct{}         // guarded by mu; digests that are recorded; nil: to be read
}

// changed has the records read again: a machine may have come or gone.
func (u *use) changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used = nil
}

// hold keeps an image for a machine until drop.
func (u *use) hold(id bourse.MachineID, digest string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held == nil {
		u.held = map[bourse.MachineID]string{}
	}
	u.held[id] = digest
}

// drop ends a hold, once the machine is recorded with its image or never will
// be.
func (u *use) drop(id bourse.MachineID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.held[id]; ok {
		delete(u.held, id)
		u.used = nil
	}
}

// has reports whether an image is in use. It holds the lock while it reads, so
// that no hold ends between.
func (u *use) has(digest string, read func() (map[string]struct{}, error)) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, held := range u.held {
		if held == digest {
			return true
		}
	}
	if u.used == nil {
		used, err := read()
		if err != nil {
			return true // rather a full disk than a machine without its image
		}
		u.used = used
	}
	_, ok := u.used[digest]
	return ok
}

// InUse reports whether an image must stay.
func (i *images) InUse(digest string) bool {
	return i.use.has(digest, func() (map[string]struct{}, error) {
		used := map[string]struct{}{}
		err := i.state.Store.View(func(tx *store.Tx) error {
			for m, err := range tx.Machines() {
				if err != nil {
					return err
				}
				if m.State == bourse.StateDestroyed {
					continue
				}
				if m.Image != nil {
					used[m.Image.Digest] = struct{}{}
				}
				if m.Next != nil && m.Next.Image != nil {
					used[m.Next.Image.Digest] = struct{}{}
				}
			}
			return nil
		})
		return used, err
	})
}

// Ensure pulls the image that m is recorded with, should it have gone
// from the host.
func (i *images) Ensure(ctx context.Context, m *bourse.Machine) error {
	switch {
	case m.Config.ImageKind() != bourse.RegistryImage:
		return nil
	case i.ImageHost == nil:
		return errNoImages
	case m.Image == nil: // no run has prepared it: an order's run ends with the image, or the machine is destroyed
		return bourse.Errorf(bourse.CodeInternal, "machine %s has no image", m.ID)
	case i.Has(*m.Image):
		i.Used(m.Image.Digest)
		return nil
	}
	org, err := i.OrgOf(m)
	if err != nil {
		return err
	}
	if _, err := i.Pull(ctx, org, *m.Image, nil); err != nil {
		return err
	}
	i.Used(m.Image.Digest)
	return nil
}

// PullFor has the machine's image on the host when it returns, and kept there
// until that is recorded. The event is nil when nothing had to be pulled.
func (i *images) PullFor(ctx context.Context, m *bourse.Machine) (bourse.ImageRef, *bourse.PullEvent, error) {
	org, err := i.OrgOf(m)
	if err != nil {
		return bourse.ImageRef{}, nil, err
	}
	ref, err := i.Resolve(ctx, org, m.Config.Image)
	if err != nil {
		return ref, nil, Unresolved{err}
	}
	i.use.hold(m.ID, ref.Digest)
	if i.Has(ref) {
		return ref, nil, nil
	}
	if !Told(m) {
		missing, _ := i.Missing(org, ref.String())
		if err := i.RecordPull(ctx, m.ID, &bourse.PullEvent{Image: ref.String(), Bytes: missing}); err != nil {
			return ref, nil, err
		}
	}
	begin := time.Now()
	defer i.coming.Delete(m.ID)
	image, err := i.Pull(ctx, org, ref, func(now bourse.Image) { i.coming.Store(m.ID, now) })
	if err != nil {
		return ref, nil, err
	}
	took := time.Since(begin)
	i.state.Counts.Pulled(image.Bytes, took)
	if image.Ref.Digest == ref.Digest {
		ref = image.Ref // it may know more: labels
	}
	return ref, &bourse.PullEvent{Image: ref.String(), Bytes: image.Bytes, Took: took, Done: true}, nil
}

// OrgOf returns the organisation whose credentials bring m its image: that of
// its app; "" where the app is gone and its name is another's.
func (i *images) OrgOf(m *bourse.Machine) (org string, err error) {
	err = i.state.Store.View(func(tx *store.Tx) error {
		app, ok, err := tx.App(m.App)
		if ok && m.OwnedBy(&app) {
			org = app.Org
		}
		return err
	})
	return org, err
}

// RecordPull writes an event about a pull.
func (i *images) RecordPull(ctx context.Context, id bourse.MachineID, pull *bourse.PullEvent) error {
	return i.state.Commit(ctx, id, func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			return true, []bourse.Event{PullEvent(m, pull)}, nil
		})
		return err
	})
}

// PullEvent returns the event of a pull.
func PullEvent(m *bourse.Machine, pull *bourse.PullEvent) bourse.Event {
	return bourse.Event{Type: bourse.EventPull, State: m.State, Source: bourse.SourceWorker, Pull: pull}
}

// Unresolved is an image's name whose registry did not say what it means.
type Unresolved struct{ error }

// Unwrap returns what the registry said.
func (e Unresolved) Unwrap() error { return e.error }

// Told reports whether a pull for m has begun before, by its events.
func Told(m *bourse.Machine) bool {
	return slices.ContainsFunc(m.LastEvents, func(e bourse.Event) bool { return e.Type == bourse.EventPull })
}

// pullStep brings the image of an order's machine to the host, and records
// what its name means: that stays so for this version of the machine, whatever
// becomes of the name. It ends with the order's deadline, or as soon as the
// machine is no longer wanted. When there is no such image, or no way to it,
// the order is not filled here.
func (ms *Machines) pullStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStarting && m.State != bourse.StateCreated { // destroyed before it came to this
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State))
	}
	if m.Config.ImageKind() != bourse.RegistryImage {
		return fsm.Done()
	}
	wanted, stop := ms.while(ctx, m.ID, r.Request.Until, func(now *bourse.Machine) bool { return now.State == m.State })
	ref, event, err := ms.images.PullFor(wanted, &m)
	if cause := context.Cause(wanted); err != nil && cause != nil {
		err = ofTime(cause, &m, r.Failure)
	}
	stop()
	if err == nil {
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return recordImage(tx, m.ID, ref, event) }))
	}
	ms.images.Drop(m.ID)
	switch code := bourse.CodeOf(err); {
	case errors.Is(err, errUnwanted):
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is no longer wanted", m.ID))
	case errors.Is(err, errTooLate):
	case errors.As(err, new(Unresolved)) && r.Attempt > 0 && !Told(&m):
		// Its registry was not reached twice, and never before: another worker may reach it.
	case code == bourse.CodeUnavailable, code == bourse.CodeTimeout, code == bourse.CodeCanceled, code == bourse.CodeInternal:
		return fsm.RetryAfter(pullPause(r.Attempt, r.Request.Until), err)
	}
	return ms.unfilled(ctx, r, &m, err) // a daemon's recovery has given it a network
}

var (
	errUnwanted = errors.New("the machine is no longer wanted")
	errTooLate  = errors.New("the order's deadline has passed")
)

// ofTime returns the error of a pull that its ctx has ended: of one that came too late, with
// the failure of the attempt before.
func ofTime(cause error, m *bourse.Machine, failure string) error {
	if !errors.Is(cause, errTooLate) {
		return cause
	}
	text := "image " + m.Config.Image + ": not pulled before the order's deadline"
	if failure != "" {
		text += ": " + strings.TrimPrefix(failure, "image "+m.Config.Image+": ")
	}
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: text, Err: errTooLate}
}

const (
	pullPauseFirst = 100 * time.Millisecond
	pullPauseMost  = 5 * time.Second
)

// pullPause is how long to wait before a pull is tried again: doubling, and not past the
// order's deadline, at which its claim is answered.
func pullPause(attempt int, until time.Time) time.Duration {
	pause := min(pullPauseMost, pullPauseFirst<<min(attempt, 10))
	if !until.IsZero() {
		pause = min(pause, time.Until(until))
	}
	return pause
}

// while returns a ctx that ends when what is pulled for a machine is no longer
// wanted, or at a time. stop must be called.
func (ms *Machines) while(ctx context.Context, id bourse.MachineID, until time.Time, wanted func(*bourse.Machine) bool) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := context.CancelFunc(func() {})
	if !until.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, until, errTooLate)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		_, err := ms.state.AwaitMachine(ctx, id, func(now *bourse.Machine) bool { return !wanted(now) })
		if err == nil || bourse.CodeOf(err) == bourse.CodeNotFound {
			end(errUnwanted)
		}
	})
	return ctx, func() { end(nil); cancel(); looking.Wait() }
}

// recordImage writes what the name of a machine's image means.
func recordImage(tx *store.Tx, id bourse.MachineID, ref bourse.ImageRef, pull *bourse.PullEvent) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.State != bourse.StateStarting && m.State != bourse.StateCreated {
			return false, nil, nil
		}
		m.Image = &ref
		if pull == nil {
			return true, nil, nil
		}
		return true, []bourse.Event{PullEvent(m, pull)}, nil
	})
	return err
}

// Pulling returns how far the pull has come that an order's machine waits for.
// CodeNotFound when it waits for none.
func (ms *Machines) Pulling(_ context.Context, id bourse.OrderID) (bourse.Image, error) {
	var rec store.OrderRecord
	err := ms.state.Store.View(func(tx *store.Tx) (err error) {
		rec, _, err = tx.Order(id)
		return err
	})
	if err != nil {
		return bourse.Image{}, err
	}
	if image, ok := ms.images.Coming(rec.Machine); ok {
		return image, nil
	}
	return bourse.Image{}, bourse.Errorf(bourse.CodeNotFound, "no image is being pulled for order %s", id)
}
