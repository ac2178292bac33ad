package nats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

func maxPayload(n int32) *server.Options { return &server.Options{MaxPayload: n} }

// quoting returns a worker's handler that answers every order.
func quoting() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o bourse.Order
		if err := fabric.ReadBody(w, r, &o); err != nil {
			fabric.WriteFailure(w, err)
			return
		}
		fabric.WriteBody(w, bourse.Quote{Worker: "w1", Region: "gru"})
	})
}

// TestRestart restarts the NATS server under load. Every call must end within its deadline,
// and calls must succeed again soon.
func TestRestart(t *testing.T) {
	s := serverWith(t, &server.Options{})
	port := s.Addr().String()[len("127.0.0.1:"):]
	n := newNetwork(t, s.ClientURL(), false, nil)
	w := n.Serve("w1", quoting())
	var late atomic.Int64
	quotes, stop := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				const within = time.Second
				ctx, cancel := context.WithTimeout(t.Context(), within)
				began, got := time.Now(), 0
				n.Fabric().Ask(ctx, []bourse.Member{w.Member}, &bourse.Order{}, func(bourse.Quote) { got++ })
				// Any result is fine if it arrives in time.
				_, _, _ = fabric.Trader{Fabric: n.Fabric()}.Claim(ctx, w.Member, &bourse.Claim{})
				cancel()
				if time.Since(began) > within+time.Second {
					late.Add(1)
				}
				select {
				case <-stop:
					return
				case sent(quotes, got) <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 3 {
		awaitQuotes(t, quotes, 100)
		s.Shutdown()
		s.WaitForShutdown()
		s = serverWith(t, &server.Options{Port: number(port)})
	}
	awaitQuotes(t, quotes, 100)
	close(stop)
	wg.Wait()
	if late.Load() > 0 {
		t.Errorf("%d calls took longer than their deadline", late.Load())
	}
	if n.fabric.Link.Reconnects.Load() == 0 {
		t.Error("no reconnect was counted")
	}
}

// sent returns a channel for reporting a quote, or nil if there was none to report.
func sent(quotes chan struct{}, got int) chan struct{} {
	if got == 0 {
		return nil
	}
	return quotes
}

// awaitQuotes waits until n quotes have been reported.
func awaitQuotes(t *testing.T, quotes <-chan struct{}, n int) {
	t.Helper()
	end := time.After(patience)
	for i := range n {
		select {
		case <-quotes:
		case <-end:
			t.Fatalf("%d quotes, want %d", i, n)
		}
	}
}

func number(s string) (n int) {
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

// TestSlowConsumer checks that lost messages break connections and are counted.
func TestSlowConsumer(t *testing.T) {
	url := embedded(t)
	slow := open(t, url)
	one, other := pair(t, open(t, url), slow)
	slow.Complain(client.ErrSlowConsumer)
	for _, c := range []io.Reader{one, other} {
		if _, err := io.Copy(io.Discard, c); err == nil {
			t.Error("a connection that missed messages ended without an error")
		}
	}
	if slow.SlowConsumers.Load() != 1 || slow.Resets.Load() != 1 {
		t.Errorf("%d slow consumers and %d resets, want 1 and 1", slow.SlowConsumers.Load(), slow.Resets.Load())
	}
}

// TestSmallPayload checks that data that is too large for one message is split.
func TestSmallPayload(t *testing.T) {
	s := serverWith(t, maxPayload(4<<10))
	n := newNetwork(t, s.ClientURL(), true, nil)
	w := n.Serve("w1", quoting())
	v := n.Serve("w2", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	large := &bourse.Order{Config: bourse.Config{Init: bourse.Init{Exec: []string{strings.Repeat("x", 64<<10)}}}}
	quotes := 0
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n.Fabric().Ask(ctx, []bourse.Member{w.Member, v.Member}, large, func(bourse.Quote) { quotes++ })
	if quotes != 1 || n.fabric.Link.Oversized.Load() != 1 {
		t.Errorf("%d quotes, %d orders counted as oversized; want 1 and 1", quotes, n.fabric.Link.Oversized.Load())
	}
}

// TestGone checks that the death of the other end is noticed without sending it a message.
func TestGone(t *testing.T) {
	url := embedded(t)
	mortal := open(t, url)
	one, _ := pair(t, open(t, url), mortal)
	go mortal.Cut()
	_ = one.SetReadDeadline(time.Now().Add(patience))
	if _, err := one.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("read after the other process ended: %v", err)
	}
}

// TestSilent checks that a connection to a suspended process is eventually reset, although the process is still
// connected to NATS.
func TestSilent(t *testing.T) {
	url := embedded(t)
	other, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	accept := []byte{2, 0, 0, 0, 0, 0, 1, 0, 0} // accepts the connection, and sends nothing more
	_, err = other.Subscribe("bourse.test.at.fd6e61747300000000000000000000aa.>", func(m *client.Msg) {
		if strings.HasSuffix(m.Subject, ".dial.1") {
			_ = other.PublishRequest(m.Reply, "nowhere", accept)
		}
	})
	if err = errors.Join(err, other.Flush()); err != nil {
		t.Fatal(err)
	}
	c, err := open(t, url).Dial(t.Context(), "[fd6e:6174:7300::aa]:1")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read from a silent connection: %v", err)
	}
}

// TestNoServer checks that calls on a link without NATS fail immediately, and work once
// NATS is available.
func TestNoServer(t *testing.T) {
	s := serverWith(t, &server.Options{})
	port := number(s.Addr().String()[len("127.0.0.1:"):])
	url := s.ClientURL()
	s.Shutdown()
	s.WaitForShutdown()
	n := newNetwork(t, url, false, nil)
	began := time.Now()
	other := bourse.Member{ID: "w1", Region: "gru", Address: "[fd6e:6174:7300::1]:1"}
	n.Fabric().Ask(t.Context(), []bourse.Member{other}, &bourse.Order{}, func(bourse.Quote) { t.Error("a quote although there is no worker") })
	if _, _, err := (fabric.Trader{Fabric: n.Fabric()}).Claim(t.Context(), other, &bourse.Claim{}); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("a claim: %v", err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the calls without NATS failed after %s", took)
	}
	serverWith(t, &server.Options{Port: port})
	var quotes atomic.Int64
	w := n.Serve("w2", quoting())
	w.Member.ID = "w1" // the handler answers only requests for this id
	for end := time.Now().Add(patience); quotes.Load() == 0 && time.Now().Before(end); {
		n.Fabric().Ask(t.Context(), []bourse.Member{w.Member}, &bourse.Order{}, func(bourse.Quote) { quotes.Add(1) })
	}
	if quotes.Load() == 0 {
		t.Error("no quote although NATS is available again")
	}
}

// TestLeaf disconnects a leaf node with a worker and reconnects it. In the meantime, callers
// must be notified in time that the worker cannot be reached, and the answers of calls in
// progress must be lost.
func TestLeaf(t *testing.T) {
	port := freePort(t)
	hub := serverWith(t, &server.Options{LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: port}})
	at, err := url.Parse(fmt.Sprintf("nats://127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	remote := func() *server.Options {
		return &server.Options{LeafNode: server.LeafNodeOpts{ReconnectInterval: 100 * time.Millisecond, Remotes: []*server.RemoteLeafOpts{{URLs: []*url.URL{at}}}}}
	}
	leaf := serverWith(t, remote())
	leafPort := leaf.Addr().(*net.TCPAddr).Port
	n := newNetwork(t, hub.ClientURL(), true, nil)
	n.place = leaf.ClientURL
	arrived, left := make(chan struct{}, 1), make(chan struct{})
	ask := quoting()
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/worker/order/quote" {
			ask.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // otherwise, the server would not notice that the caller disconnects
		arrived <- struct{}{}
		<-r.Context().Done()
		close(left)
	}))
	quotes := func(within time.Duration) (count int) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		n.Fabric().Ask(ctx, []bourse.Member{w.Member}, &bourse.Order{}, func(bourse.Quote) { count++ })
		return count
	}
	for end := time.Now().Add(patience); quotes(time.Second) == 0; {
		if time.Now().After(end) {
			t.Fatal("the leaf's worker does not answer")
		}
	}
	claimed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, _, err := fabric.Trader{Fabric: n.Fabric()}.Claim(ctx, w.Member, &bourse.Claim{})
		claimed <- err
	}()
	<-arrived
	leaf.Shutdown()
	leaf.WaitForShutdown()
	if err := <-claimed; bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("the claim in progress: %v, want timeout", err)
	}
	<-left // the worker has noticed the loss, too
	began := time.Now()
	if quotes(patience) != 0 {
		t.Error("a quote from the disconnected worker")
	}
	if _, _, err := (fabric.Trader{Fabric: n.Fabric()}).Claim(t.Context(), w.Member, &bourse.Claim{}); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("a claim on the disconnected worker: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the calls to the disconnected worker failed after %s", took)
	}
	back := remote()
	back.Port = leafPort
	serverWith(t, back)
	for end := time.Now().Add(patience); quotes(time.Second) == 0; {
		if time.Now().After(end) {
			t.Fatal("the leaf is back, but its worker does not answer")
		}
	}
}
