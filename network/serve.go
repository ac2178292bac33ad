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

// retryDelay is the delay before the resolver tries again to listen. Listening may fail because its
// address was removed or another process uses the port.
const retryDelay = time.Second

// run answers queries until ctx ends. If serving fails, run tries again.
func (r *resolver) run(ctx context.Context, at netip.AddrPort) {
	for told := false; ; {
		err := r.serve(ctx, at)
		if ctx.Err() != nil {
			return
		}
		if !told {
			r.log.Error("serve private names failed", "addr", at, "err", err)
			told = true // log only once, because serving is retried every second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryDelay):
		}
	}
}

// serve listens on UDP and TCP until ctx ends or one of them fails.
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
				_ = server.Shutdown() // waits for handlers, whose ctx has ended
			case <-ended:
			}
		})
	}
	wg.Wait()
	return errors.Join(context.Cause(ctx), ignoreClosed(packets.Close()), ignoreClosed(listener.Close()))
}

// ignoreClosed drops the error of a listener that the server has already closed.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
