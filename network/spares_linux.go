package network

import (
	"context"
	"log/slog"
	"time"
)

// spares holds namespaces that are prepared for new machines. Only the daemon's open file descriptors keep them alive, so
// they disappear when the daemon exits.
type spares struct {
	ready  chan *namespace
	wanted chan struct{} // contains a token if a spare may be missing
	fresh  func() (*namespace, error)
}

func newSpares(count int, fresh func() (*namespace, error)) *spares {
	return &spares{ready: make(chan *namespace, count), wanted: make(chan struct{}, 1), fresh: fresh}
}

// take returns a spare, or nil if there is none.
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

// run prepares missing spares until ctx ends, and then drops all of them.
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
				// not fatal, because Attach prepares a namespace itself if there is no spare
				log.Warn("prepare network namespace failed", "err", err)
				s.waitToRetry(ctx)
				break
			}
			s.ready <- ns // only run adds, so the buffer is not full
		}
	}
}

// waitToRetry waits before the next try.
func (s *spares) waitToRetry(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
		s.want()
	}
}

// drain closes the spares. It deletes the links explicitly, because they would disappear with the namespaces only
// after a delay.
func (s *spares) drain(h *host) {
	for {
		select {
		case ns := <-s.ready:
			_ = h.nl.LinkDel(ns.outer) // if this fails, the link is removed with the namespace
			ns.close()
		default:
			return
		}
	}
}
