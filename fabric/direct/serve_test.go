package direct_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/admission"
)

// TestServeFinishes checks that a request in progress is answered after the server was
// asked to stop, and that the server then stops.
func TestServeFinishes(t *testing.T) {
	ln := listen(t)
	arrived, finish := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-finish
		fabric.WriteBody(w, bourse.Facts{Worker: "w1"})
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- direct.Serve(ctx, ln, h, nil, slog.New(slog.DiscardHandler)) }()
	go func() {
		<-arrived
		stop()
		for { // until new connections are refused
			c, err := (&net.Dialer{}).DialContext(context.WithoutCancel(ctx), "tcp", ln.Addr().String())
			if err != nil {
				break
			}
			c.Close()
		}
		close(finish)
	}()
	f := direct.New(nil)
	t.Cleanup(f.Close)
	facts, err := fabric.WorkerFacts.Call(t.Context(), f, member("w1", ln), struct{}{})
	if err != nil || facts.Worker != "w1" {
		t.Errorf("got %+v, %v", facts, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestServeCutsOff checks that an endless request cannot prevent a server from stopping.
func TestServeCutsOff(t *testing.T) {
	ln := listen(t)
	arrived, left := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
		close(left)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- direct.Serve(ctx, ln, h, nil, slog.New(slog.DiscardHandler)) }()
	go func() {
		<-arrived
		stop()
	}()
	f := direct.New(nil)
	t.Cleanup(f.Close)
	began := time.Now()
	_, err := fabric.WorkerFacts.Call(t.Context(), f, member("w1", ln), struct{}{})
	if err == nil {
		t.Error("the request was answered")
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
	<-left
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestServeRefuses checks the response to an endless header, and that other requests are
// served in the meantime.
func TestServeRefuses(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fabric.WriteBody(w, bourse.Facts{Worker: "w1"}) })
	ln, _ := serve(t, h, nil)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /worker/facts HTTP/1.1\r\n"); err != nil {
		t.Fatal(err)
	}
	f := direct.New(nil)
	t.Cleanup(f.Close)
	if _, err := fabric.WorkerFacts.Call(t.Context(), f, member("w1", ln), struct{}{}); err != nil {
		t.Errorf("a call during the incomplete request: %v", err)
	}
	for i := 0; i < 1<<20; i += 64 {
		if _, err := io.WriteString(c, "X: 01234567890123456789012345678901234567890123456789012345678\r\n"); err != nil {
			return // because the server has closed the connection
		}
	}
	reply, _ := io.ReadAll(io.LimitReader(c, 100))
	if want := "HTTP/1.1 431"; len(reply) < len(want) || string(reply[:len(want)]) != want {
		t.Errorf("a header of 1 MiB: got %q, want %s", reply, want)
	}
}

// TestServeFinishesCalls checks that a call in progress is answered after the server was
// asked to stop, that further calls are refused, and that the server then stops.
func TestServeFinishesCalls(t *testing.T) {
	ln := listen(t)
	arrived, finish := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(arrived) })
	h := direct.Handler("w1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		once()
		<-finish
		_, _ = io.WriteString(w, "done")
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- direct.Serve(ctx, ln, h, nil, slog.New(slog.DiscardHandler)) }()
	f := direct.New(nil)
	t.Cleanup(f.Close)
	answered := make(chan error, 1)
	go func() {
		a, err := fabrictest.Send(t.Context(), f, member("w1", ln), "{}")
		if err == nil && string(a.Body) != "done" {
			err = fmt.Errorf("answered %q", a.Body)
		}
		answered <- err
	}()
	await(t, "the call", arrived)
	stop()
	for turned := false; !turned; {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // until the server accepts no more calls
		a, err := fabrictest.Send(ctx, f, member("w1", ln), "{}")
		cancel()
		turned = err == nil && a.Status == http.StatusServiceUnavailable
	}
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestServeCutsOffCalls checks that an endless call cannot prevent a server from stopping, and that the call's handler
// has returned by then.
func TestServeCutsOffCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := newPipes(), fabrictest.NewStuck()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- direct.Serve(ctx, p, direct.Handler("w1", s), nil, slog.New(slog.DiscardHandler))
		}()
		f := direct.NewOver(p.dial, nil, admission.Proof{})
		defer f.Close()
		answered := make(chan error, 1)
		go func() {
			_, err := fabrictest.Send(t.Context(), f, someone, "{}")
			answered <- err
		}()
		<-s.Arrived
		stop()
		began := time.Now()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("it took %s", took)
		}
		select {
		case <-s.Left:
		default:
			t.Error("the handler has not ended")
		}
		wantCode(t, <-answered, bourse.CodeTimeout)
	})
}
