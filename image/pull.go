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

// Values of bourse.PullProgress.Status.
const (
	statusResolving = "resolving"
	statusPulling   = "pulling"
	statusUnpacking = "unpacking"
	statusDone      = "done"
)

// progressEvery is the minimum time between two progress reports to a waiter.
const progressEvery = 200 * time.Millisecond

// pull is a pull in progress and its waiters.
type pull struct {
	ref    bourse.ImageRef
	org    string // organization of the first waiter, whose credentials the pull uses
	done   chan struct{}
	cancel context.CancelCauseFunc

	phase           atomic.Pointer[string]
	received, total atomic.Int64
	resumed         bool // an earlier attempt left a lease; used only by the pull's goroutine

	// Written before done is closed; read only after that.
	image bourse.Image
	err   error

	// Guarded by Store.mu.
	waiters int
	linger  *time.Timer // set while the pull has no waiters
	parts   parts       // parts that are known to occupy or need disk space
}

// leftover is the data of a failed pull that is kept for a retry.
type leftover struct {
	ref    bourse.ImageRef
	parts  parts
	failed time.Time
}

// keepsData reports whether a failed pull's lease and data must be kept for a retry. If the pull failed because the
// daemon is stopping, the lease is kept even if no data was fetched.
func (p *pull) keepsData() bool {
	if p.err == nil || isPermanent(p.err) {
		return false
	}
	return p.received.Load() > 0 || errors.Is(p.err, errClosed)
}

func (p *pull) enter(phase string) { p.phase.Store(&phase) }

// progress returns a progress report about the pull.
func (p *pull) progress() bourse.PullProgress {
	return bourse.PullProgress{Status: *p.phase.Load(), Bytes: p.received.Load(), Total: p.total.Load()}
}

// state describes the image that is being pulled.
func (p *pull) state() bourse.Image {
	progress := p.progress()
	return bourse.Image{Ref: p.ref, Bytes: progress.Total, Pull: &progress}
}

// Pull makes an image available: it fetches the image for this host's platform, verifies it, and unpacks it. ref must
// contain a digest from Resolve, which checked the organization's access; Pull does not check access again. Concurrent
// callers of Pull for the same image share one pull. If progress is not nil, Pull calls it in the caller's goroutine:
// at the beginning, then at most five times per second, and once when the pull has succeeded.
//
// If ctx is done first, Pull returns, but the pull itself continues as long as other callers wait for it, and for
// Config.Linger after that.
//
// Errors: CodeNotFound, CodeInvalid and CodeInsufficient are permanent, and the pull's data is removed.
// CodeUnavailable means that the registry or containerd is unreachable; a retry resumes where this pull stopped.
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

// join returns the pull of an image, starting it if necessary. If the image is present, it
// returns the image instead.
func (s *Store) join(ctx context.Context, org string, ref bourse.ImageRef) (*pull, bourse.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := recordName(ref)
	if r, ok := s.memory.catalog.records[name]; ok {
		s.memory.catalog.setTag(r, ref.Tag)
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

// start starts a pull that has no waiters yet. Store.mu must be held.
func (s *Store) start(ctx context.Context, org string, ref bourse.ImageRef) *pull {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ref.Labels = nil
	p := &pull{ref: ref, org: org, done: make(chan struct{}), cancel: cancel, parts: parts{}}
	p.enter(statusResolving)
	name := recordName(ref)
	s.memory.pulls[name] = p
	if old, ok := s.memory.leftovers[name]; ok {
		p.parts = maps.Clone(old.parts)
		delete(s.memory.leftovers, name)
	}
	s.pulling.Go(func() {
		defer cancel(nil)
		s.carryOut(ctx, p)
	})
	s.notify()
	return p
}

// leave records that a caller no longer waits for a pull.
func (s *Store) leave(p *pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.waiters--; p.waiters == 0 && s.memory.pulls[recordName(p.ref)] == p {
		s.endAfterLinger(p)
	}
}

// endAfterLinger starts a timer that cancels the pull if it still has no waiters after Config.Linger. Store.mu must be
// held.
func (s *Store) endAfterLinger(p *pull) {
	p.linger = time.AfterFunc(s.config.Linger, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.waiters == 0 {
			p.cancel(errNoWaiters)
		}
	})
}

// wait waits until the pull ends, and calls progress while it waits.
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

// carryOut executes a pull. When the pull ends, carryOut removes it and notifies the waiters.
func (s *Store) carryOut(ctx context.Context, p *pull) {
	name := recordName(p.ref)
	began := time.Now()
	image, err := s.waitAndRun(ctx, p)
	if cause, ok := errors.AsType[*bourse.Error](context.Cause(ctx)); ok && err != nil {
		err = cause // the pull exceeded the budget
	}
	p.image, p.err = image, withCode(err, p.ref.String())
	s.settle(context.WithoutCancel(ctx), p)
	s.mu.Lock()
	delete(s.memory.pulls, name)
	delete(p.parts, activePart)
	if p.keepsData() {
		s.memory.leftovers[name] = leftover{ref: p.ref, parts: p.parts, failed: time.Now()}
	}
	if p.linger != nil {
		p.linger.Stop()
	}
	s.mu.Unlock()
	close(p.done)
	s.notify()
	if p.err != nil {
		s.config.Log.Warn("pull image failed", "image", p.ref.String(), "bytes", p.received.Load(), "err", p.err)
		return
	}
	s.config.Log.Info("image pulled", "image", p.ref.String(), "bytes", image.Bytes, "disk", image.Disk, "duration", time.Since(began))
}

// waitAndRun waits until the pull may start, and executes it.
func (s *Store) waitAndRun(ctx context.Context, p *pull) (bourse.Image, error) {
	leave, err := s.slots.acquire(ctx)
	if err != nil {
		return bourse.Image{}, err
	}
	defer leave()
	return s.attempt(ctx, p)
}
