package direct_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
)

// TestServeFinishes shows that a request under way is answered after the
// server was asked to end, and that the server then has ended.
func TestServeFinishes(t *testing.T) {
	ln := listen(t)
	arrived, finish := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-finish
		fabric.WriteJSON(w, bourse.Facts{Worker: "w1"})
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- direct.Serve(ctx, ln, h, nil, slog.New(slog.DiscardHandler)) }()
	go func() {
		<-arrived
		stop()
		for { // until nobody new is let in
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
	facts, err := fabric.NewClient(f).Facts(t.Context(), member("w1", ln))
	if err != nil || facts.Worker != "w1" {
		t.Errorf("got %+v, %v", facts, err)
	}
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestServeCutsOff shows that a request which does not end cannot keep a
// server from ending.
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
	_, err := fabric.NewClient(f).Facts(t.Context(), member("w1", ln))
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

// TestServeRefuses shows what a caller gets for a header without end, and that
// others are served meanwhile.
func TestServeRefuses(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fabric.WriteJSON(w, bourse.Facts{Worker: "w1"}) })
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
	if _, err := fabric.NewClient(f).Facts(t.Context(), member("w1", ln)); err != nil {
		t.Errorf("beside it: %v", err)
	}
	for i := 0; i < 1<<20; i += 64 {
		if _, err := io.WriteString(c, "X: 01234567890123456789012345678901234567890123456789012345678\r\n"); err != nil {
			return // the server has hung up
		}
	}
	reply, _ := io.ReadAll(io.LimitReader(c, 100))
	if want := "HTTP/1.1 431"; len(reply) < len(want) || string(reply[:len(want)]) != want {
		t.Errorf("a header of 1 MiB: got %q, want %s", reply, want)
	}
}
