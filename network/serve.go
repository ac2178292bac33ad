package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// retryDelay is the delay before the resolver tries to listen again. Listening fails if the
// resolver's address was removed or if another process uses the port.
const retryDelay = time.Second

// run answers queries until ctx is done. If serving fails, run tries again.
func (r *resolver) run(ctx context.Context, at netip.AddrPort) {
	for logged := false; ; {
		err := r.serve(ctx, at)
		if ctx.Err() != nil {
			return
		}
		if !logged {
			r.log.Error("serve private names failed", "addr", at, "err", err)
			logged = true // log only the first failure, because serving is retried every second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryDelay):
		}
	}
}

// serve answers queries over UDP and TCP until ctx is done or one of the listeners fails.
func (r *resolver) serve(ctx context.Context, at netip.AddrPort) error {
	var config net.ListenConfig
	packets, err := config.ListenPacket(ctx, "udp", at.String())
	if err != nil {
		return err
	}
	listener, err := config.Listen(ctx, "tcp", at.String())
	if err != nil {
		return errors.Join(err, packets.Close())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) { r.serveOne(ctx, w, question) })
	var wg sync.WaitGroup
	for _, server := range []*dns.Server{
		{PacketConn: packets, Handler: handler, UDPSize: ednsSize},
		{Listener: limit(listener), Handler: handler, ReadTimeout: questionTimeout},
	} {
		started, ended := make(chan struct{}), make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		wg.Go(func() {
			defer close(ended)
			cancel(server.ActivateAndServe())
		})
		wg.Go(func() {
			<-ctx.Done()
			select {
			case <-started:
				_ = server.Shutdown() // waits for handlers, whose ctx is done
			case <-ended:
			}
		})
	}
	wg.Wait()
	return errors.Join(context.Cause(ctx), ignoreClosed(packets.Close()), ignoreClosed(listener.Close()))
}

// ignoreClosed returns nil if err means that the server has already closed the listener, and err
// otherwise.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
