package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// The statuses of a bourse.PullProgress.
const (
	statusResolving = "resolving"
	statusPulling   = "pulling"
	statusUnpacking = "unpacking"
	statusDone      = "done"
)

// progressEvery is the shortest time between two reports of progress to a waiter.
const progressEvery = 200 * time.Millisecond

// pull is a pull in progress, with its waiters.
type pull struct {
	ref    bourse.ImageRef
	org    string // whose credentials it uses: the first waiter's
	done   chan struct{}
	cancel context.CancelCauseFunc

	phase      atomic.Pointer[string]
	got, total atomic.Int64
	again      bool // an earlier attempt left its lease; the pull's goroutine's own

	// Written before done is closed, read after.
	image bourse.Image
	err   error

	// Guarded by Store.mu.
	waiters int
	linger  *time.Timer // runs while there are no waiters
	parts   parts       // what it takes on disk, known so far
}

// leftover is what a failed pull keeps for a retry.
type leftover struct {
	ref    bourse.ImageRef
	parts  parts
	failed time.Time
}

// keeps reports whether an ended pull leaves its lease for a retry, with what it has
// fetched: one that was stopped with the daemon does even when that is nothing yet.
func (p *pull) keeps() bool {
	if p.err == nil || final(p.err) {
		return false
	}
	return p.got.Load() > 0 || errors.Is(p.err, errClosed)
}

func (p *pull) enter(phase string) { p.phase.Store(&phase) }

// progress is how far the pull has come.
func (p *pull) progress() bourse.PullProgress {
	return bourse.PullProgress{Status: *p.phase.Load(), Bytes: p.got.Load(), Total: p.total.Load()}
}

// state is the image as it is until it is there.
func (p *pull) state() bourse.Image {
	progress := p.progress()
	return bourse.Image{Ref: p.ref, Bytes: progress.Total, Pull: &progress}
}

// Pull makes an image present: fetched for this host's platform, verified and
// unpacked. ref has a digest, from Resolve, which has checked that the
// organisation may have it: Pull does not check again. All callers with the same image
// share one pull; progress is called in each caller's goroutine, at most five
// times a second and once at the end. progress may be nil.
//
// When ctx ends the caller stops waiting, the pull goes on for the others, and
// for Config.Linger when there are none.
//
// CodeNotFound, CodeInvalid, CodeInsufficient: final, nothing of it is kept.
// CodeUnavailable: the registry or containerd is unreachable; a repetition resumes where
// this pull stopped.
func (s *Store) Pull(ctx context.Context, org string, ref bourse.ImageRef, progress func(bourse.Image)) (bourse.Image, error) {
	if err := checkRef(ref); err != nil {
		return bourse.Image{}, err
	}
	if ref.Digest == "" {
		return bourse.Image{}, bourse.Errorf(bourse.CodeInvalid, "image %s has no digest: resolve it first", ref.String())
	}
	p, here, err := s.join(ctx, org, ref)
	if err != nil || p == nil {
		return here, err
	}
	defer s.leave(p)
	return p.wait(ctx, progress)
}

// join returns the pull of an image, which it starts if there is none, or else the image.
func (s *Store) join(ctx context.Context, org string, ref bourse.ImageRef) (*pull, bourse.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := recordName(ref)
	if r, ok := s.memory.catalogue.records[name]; ok {
		s.memory.catalogue.setTag(r, ref.Tag)
		return nil, r.image(), nil
	}
	if s.memory.closed {
		return nil, bourse.Image{}, bourse.Errorf(bourse.CodeUnavailable, "image %s: %w", ref.String(), errClosed)
	}
	p, ok := s.memory.pulls[name]
	if !ok {
		p = s.start(ctx, org, ref)
	}
	p.waiters++
	if p.linger != nil {
		p.linger.Stop()
		p.linger = nil
	}
	return p, bourse.Image{}, nil
}

// start begins a pull without waiters. Store.mu is held.
func (s *Store) start(ctx context.Context, org string, ref bourse.ImageRef) *pull {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ref.Labels = nil
	p := &pull{ref: ref, org: org, done: make(chan struct{}), cancel: cancel, parts: parts{}}
	p.enter(statusResolving)
	name := recordName(ref)
	s.memory.pulls[name] = p
	if old, ok := s.memory.kept[name]; ok {
		p.parts = maps.Clone(old.parts)
		delete(s.memory.kept, name)
	}
	s.pulling.Go(func() {
		defer cancel(nil)
		s.carryOut(ctx, p)
	})
	s.notify()
	return p
}

// leave takes a waiter off.
func (s *Store) leave(p *pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.waiters--; p.waiters == 0 && s.memory.pulls[recordName(p.ref)] == p {
		s.unattended(p)
	}
}

// unattended has a pull go on without waiters, for a while. Store.mu is held.
func (s *Store) unattended(p *pull) {
	p.linger = time.AfterFunc(s.config.Linger, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.waiters == 0 {
			p.cancel(errNobody)
		}
	})
}

// wait waits for the pull's end and passes its progress on.
func (p *pull) wait(ctx context.Context, progress func(bourse.Image)) (bourse.Image, error) {
	tell := func(image bourse.Image) {
		if progress != nil {
			progress(image)
		}
	}
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	last := p.state()
	tell(last)
	for {
		select {
		case <-p.done:
			if p.err == nil {
				image := p.image
				image.Pull = &bourse.PullProgress{Status: statusDone, Bytes: image.Bytes, Total: image.Bytes}
				tell(image)
			}
			return p.image, p.err
		case <-ctx.Done():
			return bourse.Image{}, fmt.Errorf("image %s: %w", p.ref.String(), context.Cause(ctx))
		case <-ticker.C:
			if now := p.state(); *now.Pull != *last.Pull {
				last = now
				tell(now)
			}
		}
	}
}

// carryOut pulls, notifies the waiters, and removes the pull.
func (s *Store) carryOut(ctx context.Context, p *pull) {
	name := recordName(p.ref)
	began := time.Now()
	image, err := s.inTurn(ctx, p)
	if cause, ok := errors.AsType[*bourse.Error](context.Cause(ctx)); ok && err != nil {
		err = cause // past the budget
	}
	p.image, p.err = image, coded(err, p.ref.String())
	s.settle(context.WithoutCancel(ctx), p)
	s.mu.Lock()
	delete(s.memory.pulls, name)
	delete(p.parts, activePart)
	if p.keeps() {
		s.memory.kept[name] = leftover{ref: p.ref, parts: p.parts, failed: time.Now()}
	}
	if p.linger != nil {
		p.linger.Stop()
	}
	s.mu.Unlock()
	close(p.done)
	s.notify()
	if p.err != nil {
		s.config.Log.Warn("image not pulled", "image", p.ref.String(), "bytes", p.got.Load(), "err", p.err)
		return
	}
	s.config.Log.Info("image pulled", "image", p.ref.String(), "bytes", image.Bytes, "disk", image.Disk, "duration", time.Since(began))
}

// inTurn waits for the pull's turn and pulls.
func (s *Store) inTurn(ctx context.Context, p *pull) (bourse.Image, error) {
	leave, err := s.turns.pass(ctx)
	if err != nil {
		return bourse.Image{}, err
	}
	defer leave()
	return s.attempt(ctx, p)
}
