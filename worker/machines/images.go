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

// ImageHost manages the images on a worker's host. The errors not_found, invalid and insufficient_capacity are final.
// After the error unavailable, the caller may retry.
type ImageHost interface {
	// Resolve requests an image's digest from its registry, with the organization's credentials, and returns the
	// reference with that digest. If org is empty, it does not use credentials.
	Resolve(ctx context.Context, org, name string) (bourse.ImageRef, error)
	// Pull makes an image available on the host. It returns once machines can be started from the image. Concurrent
	// calls for the same image share one pull. Resolve must have returned ref for the same organization.
	Pull(ctx context.Context, org string, ref bourse.ImageRef, progress func(bourse.Image)) (bourse.Image, error)
	// Has reports whether a resolved image is on the host, so that machines can be started from it without a pull.
	Has(ref bourse.ImageRef) bool
	// Missing returns how many bytes the worker would have to pull to run the image for the
	// organization. known is false if the worker has not resolved the image for that organization.
	Missing(org, name string) (bytes int64, known bool)
	// MarkUsed records that a machine was started from the image with this digest.
	MarkUsed(digest string)
}

// images resolves and pulls the images of a worker's machines.
type images struct {
	ImageHost // nil if the worker cannot run images

	state     *state.State
	protected protected

	pulling sync.Map // maps the bourse.MachineID of each machine that waits for a pull to the bourse.Image being pulled
}

// errNoImages is returned if an image is required but the worker cannot run images.
var errNoImages = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without a container driver")

// newImages returns the image manager for a worker's machines. host is nil if the worker cannot run images.
func newImages(s *state.State, host ImageHost) *images {
	i := &images{state: s, ImageHost: host}
	if host != nil {
		s.Machines.Follow(func(_ bourse.MachineID, unsure bool) {
			if !unsure {
				i.protected.changed()
			}
		})
	}
	return i
}

// Pulling returns the progress of the pull that a machine is waiting for. It returns false
// if the machine is not waiting for a pull.
func (i *images) Pulling(id bourse.MachineID) (bourse.Image, bool) {
	image, ok := i.pulling.Load(id)
	if !ok {
		return bourse.Image{}, false
	}
	return image.(bourse.Image), true
}

// Drop stops protecting the image that was pulled for a machine. It is called once the machine's record contains the
// image, or is certain never to contain it.
func (i *images) Drop(id bourse.MachineID) { i.protected.drop(id) }

// protected tracks the images that must not be removed: the images of all machines that are not destroyed, and images
// that are about to be recorded with a machine.
type protected struct {
	mu   sync.Mutex
	held map[bourse.MachineID]string // digests that are protected but not recorded yet; guarded by mu
	used map[string]struct{}         // recorded digests; nil if the records must be read again
}

// changed discards the cached digests, so that they are read from the records again when needed. It is called after a
// machine is added, changed or removed.
func (u *protected) changed() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used = nil
}

// hold protects an image from removal on behalf of a machine, until drop is called for that machine.
func (u *protected) hold(id bourse.MachineID, digest string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held == nil {
		u.held = map[bourse.MachineID]string{}
	}
	u.held[id] = digest
}

// drop stops protecting the image that is held for a machine.
func (u *protected) drop(id bourse.MachineID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.held[id]; ok {
		delete(u.held, id)
		u.used = nil
	}
}

// has reports whether an image is held for a machine or is in a machine's record. read returns the digests in the
// records. has keeps u locked during both checks, so that drop cannot run between them.
func (u *protected) has(digest string, read func() (map[string]struct{}, error)) bool {
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
			return true // if the records cannot be read, keep the image, because a machine may need it
		}
		u.used = used
	}
	_, ok := u.used[digest]
	return ok
}

// InUse reports whether an image is in use and must therefore not be removed.
func (i *images) InUse(digest string) bool {
	return i.protected.has(digest, func() (map[string]struct{}, error) {
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

// Ensure pulls m's recorded image if it is no longer on the host.
func (i *images) Ensure(ctx context.Context, m *bourse.Machine) error {
	switch {
	case m.Config.ImageKind() != bourse.RegistryImage:
		return nil
	case i.ImageHost == nil:
		return errNoImages
	case m.Image == nil: // cannot happen: the run of an order records an image or destroys the machine
		return bourse.Errorf(bourse.CodeInternal, "machine %s has no image", m.ID)
	case i.Has(*m.Image):
		i.MarkUsed(m.Image.Digest)
		return nil
	}
	org, err := i.OrgOf(m)
	if err != nil {
		return err
	}
	if _, err := i.Pull(ctx, org, *m.Image, nil); err != nil {
		return err
	}
	i.MarkUsed(m.Image.Digest)
	return nil
}

// PullFor pulls a machine's image and protects it until Drop is called. It returns the resolved reference and an event
// for the pull. The event is nil if the image was already on the host.
func (i *images) PullFor(ctx context.Context, m *bourse.Machine) (bourse.ImageRef, *bourse.PullEvent, error) {
	org, err := i.OrgOf(m)
	if err != nil {
		return bourse.ImageRef{}, nil, err
	}
	ref, err := i.Resolve(ctx, org, m.Config.Image)
	if err != nil {
		return ref, nil, unresolved{err}
	}
	i.protected.hold(m.ID, ref.Digest)
	if i.Has(ref) {
		return ref, nil, nil
	}
	if !pullBegun(m) {
		missing, _ := i.Missing(org, ref.String())
		if err := i.RecordPull(ctx, m.ID, &bourse.PullEvent{Image: ref.String(), Bytes: missing}); err != nil {
			return ref, nil, err
		}
	}
	begin := time.Now()
	defer i.pulling.Delete(m.ID)
	image, err := i.Pull(ctx, org, ref, func(now bourse.Image) { i.pulling.Store(m.ID, now) })
	if err != nil {
		return ref, nil, err
	}
	took := time.Since(begin)
	i.state.Counts.Pulled(image.Bytes, took)
	if image.Ref.Digest == ref.Digest {
		ref = image.Ref // the pulled image's reference may also contain labels
	}
	return ref, &bourse.PullEvent{Image: ref.String(), Bytes: image.Bytes, Took: took, Done: true}, nil
}

// OrgOf returns the organization of m's app. m's image is pulled with that organization's
// credentials. The organization is "" if the app was deleted.
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

// RecordPull adds a pull event to a machine.
func (i *images) RecordPull(ctx context.Context, id bourse.MachineID, pull *bourse.PullEvent) error {
	return i.state.Commit(ctx, id, func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			return true, []bourse.Event{pullEvent(m, pull)}, nil
		})
		return err
	})
}

// pullEvent returns a machine event for a pull.
func pullEvent(m *bourse.Machine, pull *bourse.PullEvent) bourse.Event {
	return bourse.Event{Type: bourse.EventPull, State: m.State, Source: bourse.SourceWorker, Pull: pull}
}

// unresolved is the error for an image name that could not be resolved to a digest.
type unresolved struct{ error }

// Unwrap returns the registry's error.
func (e unresolved) Unwrap() error { return e.error }

// pullBegun reports whether m's recent events include a pull.
func pullBegun(m *bourse.Machine) bool {
	return slices.ContainsFunc(m.LastEvents, func(e bourse.Event) bool { return e.Type == bourse.EventPull })
}

// pullStep pulls the image for an order's machine, and records the digest that the image's name resolved to. This
// version of the machine always uses that digest. The step gives up at the order's deadline, or when the machine is
// stopped or destroyed. If the image does not exist or its registry cannot be reached, the worker does not fill the
// order.
func (ms *Machines) pullStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStarting && m.State != bourse.StateCreated { // the machine was destroyed before this step
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State))
	}
	if m.Config.ImageKind() != bourse.RegistryImage {
		return fsm.Done()
	}
	wanted, stop := ms.contextWhile(ctx, m.ID, r.Request.Until, func(now *bourse.Machine) bool { return now.State == m.State })
	ref, event, err := ms.images.PullFor(wanted, &m)
	if cause := context.Cause(wanted); err != nil && cause != nil {
		err = deadlineError(cause, &m, r.Failure)
	}
	stop()
	if err == nil {
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return recordImage(tx, m.ID, ref, event) }))
	}
	ms.images.Drop(m.ID)
	switch code := bourse.CodeOf(err); {
	case errors.Is(err, errNotNeeded):
		return fsm.Abort(bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is no longer wanted", m.ID))
	case errors.Is(err, errDeadline):
	case errors.As(err, new(unresolved)) && r.Attempt > 0 && !pullBegun(&m):
		// Resolving the image has failed twice, and no pull has begun. Give up, because another worker may be able to
		// reach the registry.
	case code == bourse.CodeUnavailable, code == bourse.CodeTimeout, code == bourse.CodeCanceled, code == bourse.CodeInternal:
		return fsm.RetryAfter(pullPause(r.Attempt, r.Request.Until), err)
	}
	return ms.destroyUnfilled(ctx, r, &m, err) // recovery may have created the machine's network
}

var (
	errNotNeeded = errors.New("the machine is no longer wanted")
	errDeadline  = errors.New("the order's deadline has passed")
)

// deadlineError returns the error for a pull whose context is done. cause is the context's cause. If cause is
// errDeadline, the error also contains failure, the previous attempt's error.
func deadlineError(cause error, m *bourse.Machine, failure string) error {
	if !errors.Is(cause, errDeadline) {
		return cause
	}
	text := "image " + m.Config.Image + ": not pulled before the order's deadline"
	if failure != "" {
		text += ": " + strings.TrimPrefix(failure, "image "+m.Config.Image+": ")
	}
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: text, Err: errDeadline}
}

const (
	minPullPause = 100 * time.Millisecond
	maxPullPause = 5 * time.Second
)

// pullPause returns the delay before the next attempt to pull an image. The delay doubles with each attempt, but never
// extends past the order's deadline (until), because the claim must be answered by then.
func pullPause(attempt int, until time.Time) time.Duration {
	pause := min(maxPullPause, minPullPause<<min(attempt, 10))
	if !until.IsZero() {
		pause = min(pause, time.Until(until))
	}
	return pause
}

// contextWhile returns a context that is canceled at the deadline, or earlier if wanted returns false for the machine
// or the machine is gone. A zero deadline means no deadline. The caller must call stop.
func (ms *Machines) contextWhile(ctx context.Context, id bourse.MachineID, deadline time.Time, wanted func(*bourse.Machine) bool) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	cancel := context.CancelFunc(func() {})
	if !deadline.IsZero() {
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, errDeadline)
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		_, err := ms.state.AwaitMachine(ctx, id, func(now *bourse.Machine) bool { return !wanted(now) })
		if err == nil || bourse.CodeOf(err) == bourse.CodeNotFound {
			end(errNotNeeded)
		}
	})
	return ctx, func() { end(nil); cancel(); looking.Wait() }
}

// recordImage records the resolved reference of a machine's image and, if pull is not nil, an event for the pull.
func recordImage(tx *store.Tx, id bourse.MachineID, ref bourse.ImageRef, pull *bourse.PullEvent) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.State != bourse.StateStarting && m.State != bourse.StateCreated {
			return false, nil, nil
		}
		m.Image = &ref
		if pull == nil {
			return true, nil, nil
		}
		return true, []bourse.Event{pullEvent(m, pull)}, nil
	})
	return err
}

// Pulling returns the progress of the image pull that an order's machine is waiting for. It returns CodeNotFound if the
// machine is not waiting for a pull.
func (ms *Machines) Pulling(_ context.Context, id bourse.OrderID) (bourse.Image, error) {
	var rec store.OrderRecord
	err := ms.state.Store.View(func(tx *store.Tx) (err error) {
		rec, _, err = tx.Order(id)
		return err
	})
	if err != nil {
		return bourse.Image{}, err
	}
	if image, ok := ms.images.Pulling(rec.Machine); ok {
		return image, nil
	}
	return bourse.Image{}, bourse.Errorf(bourse.CodeNotFound, "no image is being pulled for order %s", id)
}
