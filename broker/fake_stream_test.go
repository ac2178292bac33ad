package broker_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/machinesapi"
)

// wired is a cluster whose streams to worker w1 use a real network connection.
type wired struct {
	*cluster
	wire *direct.Fabric
	w1   bourse.Member
}

func (w *wired) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	if req.ContentLength < 0 {
		return w.wire.Call(ctx, w.w1, req)
	}
	return w.cluster.Call(ctx, to, req)
}

// streaming is the whole path of a stream: client, broker and worker.
type streaming struct {
	*setup
	client *machinesapi.Client
	m      bourse.Machine
	run    func(context.Context, fabric.ExecIO) (bourse.Exit, error)
	dial   func() (net.Conn, error)
}

// startStreaming starts a client, a broker and a worker. If h2 is set, the client uses HTTP/2.
func startStreaming(t *testing.T, h2 bool) *streaming {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { // runs last, because cleanups run in reverse order
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
	})
	s := &streaming{}
	var mux http.ServeMux
	fabric.MachineAttach.Handle(&mux, func(w http.ResponseWriter, r *http.Request, _ bourse.MachineID) { fabric.ServeExec(w, r, s.run) })
	fabric.MachineTunnel.Handle(&mux, func(w http.ResponseWriter, r *http.Request, _ fabric.TunnelRequest) {
		conn, err := s.dial()
		if err != nil {
			fabric.WriteFailure(w, bourse.Errorf(bourse.CodeUnavailable, "nothing is listening on the port: %w", err))
			return
		}
		fabric.ServeTunnel(w, r, conn)
	})
	wire := direct.New(nil)
	t.Cleanup(wire.Close)
	c := three()
	c.members[0].Address = serveWorker(t, &mux)
	s.setup = startOn(t, c, func(config *broker.Config) {
		config.View = newFakeView(c)
		config.Workers = &wired{c, wire, c.members[0]}
	})
	s.m = s.machine(t, "w1", "web", bourse.StateStarted)
	server := httptest.NewUnstartedServer(s.handler)
	server.EnableHTTP2 = h2
	if h2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	s.client = &machinesapi.Client{BaseURL: server.URL, HTTP: server.Client()}
	t.Cleanup(server.Client().CloseIdleConnections)
	return s
}

// serveWorker serves h as w1 and returns its address.
func serveWorker(t *testing.T, h http.Handler) string {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = direct.Serve(ctx, ln, direct.Handler("w1", h), nil, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() {
		ln.Close() // closes connections immediately
		wg.Wait()
		stop()
	})
	return ln.Addr().String()
}

func bothProtocols(t *testing.T, test func(*testing.T, *streaming)) {
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, startStreaming(t, false)) })
	t.Run("HTTP/2", func(t *testing.T) { test(t, startStreaming(t, true)) })
}
