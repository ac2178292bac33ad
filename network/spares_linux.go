package network

import (
	"context"
	"log/slog"
	"time"
)

// spares are namespaces that are ready for machines to come. Nothing but their
// open files keeps them, so they go with the daemon.
type spares struct {
	ready  chan *namespace
	wanted chan struct{} // capacity 1: one may be missing
	fresh  func() (*namespace, error)
}

func newSpares(count int, fresh func() (*namespace, error)) *spares {
	return &spares{ready: make(chan *namespace, count), wanted: make(chan struct{}, 1), fresh: fresh}
}

// take returns a spare, or nil when there is none now.
func (s *spares) take() *namespace {
	defer s.want()
	select {
	case ns := <-s.ready:
		return ns
	default:
		return nil
	}
}

func (s *spares) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// run makes spares that are missing, until ctx ends, and then drops all of them.
func (s *spares) run(ctx context.Context, h *host, log *slog.Logger) {
	defer s.drain(h)
	s.want()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wanted:
		}
		for len(s.ready) < cap(s.ready) && ctx.Err() == nil {
			ns, err := s.fresh()
			if err != nil {
				// Attach makes its own, and returns what is wrong.
				log.Warn("cannot prepare a network namespace", "err", err)
				s.later(ctx)
				break
			}
			s.ready <- ns // only run adds, so the buffer is not full
		}
	}
}

// later waits a moment before the next try.
func (s *spares) later(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
		s.want()
	}
}

// drain closes the spares. The links would go with the namespaces, but
// a moment later.
func (s *spares) drain(h *host) {
	for {
		select {
		case ns := <-s.ready:
			_ = h.nl.LinkDel(ns.outer) // or the namespace's end does it
			ns.close()
		default:
			return
		}
	}
}
