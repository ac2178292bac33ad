package network

import (
	"context"
	"log/slog"
	"time"
)

// namespacePool contains spare namespaces that are prepared for new machines. Only the daemon's file descriptors keep
// them alive, so they disappear when the daemon exits.
type namespacePool struct {
	ready  chan *namespace
	refill chan struct{} // contains a token if a spare may be missing
	create func() (*namespace, error)
}

func newPool(count int, fresh func() (*namespace, error)) *namespacePool {
	return &namespacePool{ready: make(chan *namespace, count), refill: make(chan struct{}, 1), create: fresh}
}

// take returns a spare, or nil if there is none.
func (s *namespacePool) take() *namespace {
	defer s.requestRefill()
	select {
	case ns := <-s.ready:
		return ns
	default:
		return nil
	}
}

func (s *namespacePool) requestRefill() {
	select {
	case s.refill <- struct{}{}:
	default:
	}
}

// run keeps the pool full until ctx is done, and then closes all spares.
func (s *namespacePool) run(ctx context.Context, h *host, log *slog.Logger) {
	defer s.drain(h)
	s.requestRefill()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.refill:
		}
		for len(s.ready) < cap(s.ready) && ctx.Err() == nil {
			ns, err := s.create()
			if err != nil {
				// Not fatal: if there is no spare, Attach prepares a namespace itself.
				log.Warn("prepare network namespace failed", "err", err)
				s.waitToRetry(ctx)
				break
			}
			s.ready <- ns // does not block, because only run adds namespaces
		}
	}
}

// waitToRetry pauses briefly, and then requests another refill.
func (s *namespacePool) waitToRetry(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
		s.requestRefill()
	}
}

// drain closes the spares. It deletes their links explicitly, because the kernel would remove them only some time after
// the namespaces.
func (s *namespacePool) drain(h *host) {
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
