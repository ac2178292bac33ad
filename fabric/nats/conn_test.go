package nats_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"golang.org/x/net/nettest"

	"github.com/bourse-dev/bourse/fabric/nats"
)

// pair returns the two ends of a connection.
func pair(t testing.TB, from, to *nats.Link) (dialed, accepted net.Conn) {
	t.Helper()
	ln := to.Listen(7)
	dialed, err := from.Dial(t.Context(), to.HostPort(7))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	if accepted, err = ln.Accept(); err != nil {
		t.Fatalf("accept: %v", err)
	}
	return dialed, accepted
}

// TestConn runs the standard suite for a net.Conn from either end.
func TestConn(t *testing.T) {
	url := embedded(t)
	for name, swap := range map[string]bool{"dialed": false, "accepted": true} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b := open(t, url), open(t, url)
				one, other := pair(t, a, b)
				if swap {
					one, other = other, one
				}
				return one, other, func() {
					one.Close()
					other.Close()
					a.Close()
					b.Close()
				}, nil
			})
		})
	}
}

func TestHalfClosed(t *testing.T) {
	url := embedded(t)
	a, b := pair(t, open(t, url), open(t, url))
	if _, err := io.WriteString(a, "question"); err != nil {
		t.Fatal(err)
	}
	if err := a.(*nats.Conn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b); err != nil || string(got) != "question" {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := io.WriteString(b, "answer"); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if got, err := io.ReadAll(a); err != nil || string(got) != "answer" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDial(t *testing.T) {
	url := embedded(t)
	a, b := open(t, url), open(t, url)
	began := time.Now()
	for what, to := range map[string]string{"a port without a listener": b.HostPort(9), "an unused address": "[fd6e:6174:7300::1]:1", "another network": "127.0.0.1:1"} {
		if c, err := a.Dial(t.Context(), to); err == nil {
			c.Close()
			t.Errorf("%s: connected", what)
		}
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the dials failed after %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Listen(7)
	if _, err := a.Dial(ctx, b.HostPort(7)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: %v", err)
	}
}

// TestStrangers checks that messages from other clients cannot crash the process, and cannot end a connection unless
// they imitate its frames.
func TestStrangers(t *testing.T) {
	s := serverWith(t, maxPayload(16<<20))
	// Signs of life may be queued behind all large messages.
	config := nats.Config{URLs: []string{s.ClientURL()}, PeerTimeout: patience}
	link := openWith(t, config)
	if _, err := link.Subscribe("w1", "gru", quoting()); err != nil {
		t.Fatal(err)
	}
	link.Transport()
	one, other := pair(t, openWith(t, config), link)
	stranger, err := client.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	home := "bourse.test.at." + link.Token() + "."
	inbox := stranger.NewInbox()
	large := make([]byte, 9<<20)
	// All large messages together stay below the 64 MB that the NATS server buffers for a client. Otherwise, the server
	// would disconnect a link that reads more slowly than this test writes.
	flooded := []string{"c", "packet", "ask", "quote", "dial"}
	for _, what := range []string{"c", "c.d1", "c.a.b.c", "packet", "ask", "ask.x", "quote", "quote.1.2.3", "dial", "dial.1", "dial.x", "dial.99999", "ping", "ping.x", "nothing", "…"} {
		for _, data := range [][]byte{nil, {}, {0}, []byte("not JSON"), []byte(`{"id":`), {2, 0, 0, 0, 0, 0, 0, 0, 1}, large} {
			for _, reply := range []string{"", inbox, home + "c.x"} {
				if len(data) == len(large) && (reply != inbox || !slices.Contains(flooded, what)) {
					continue
				}
				if err := stranger.PublishMsg(&client.Msg{Subject: home + what, Reply: reply, Data: data}); err != nil {
					t.Fatalf("publish to %s: %v", what, err)
				}
			}
		}
	}
	for _, data := range [][]byte{nil, []byte("not JSON"), large} {
		if err := stranger.Publish("bourse.test.region.gru.orders", data); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := stranger.Request("bourse.test.region.gru.orders", []byte("not JSON"), patience); err != nil || reply.Header.Get("Bourse-Failure") == "" {
		t.Errorf("an order that is not JSON was answered with %+v, %v", reply, err)
	}
	if _, err := io.WriteString(one, "still here"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(other, got); err != nil || string(got) != "still here" {
		t.Errorf("an existing connection: %q, %v", got, err)
	}
	if link.Malformed.Load() == 0 || link.Oversized.Load() == 0 {
		t.Errorf("%d malformed and %d oversized messages were counted", link.Malformed.Load(), link.Oversized.Load())
	}
}

const smallWindow = 64 << 10

// TestForged checks that a connection ends after invalid frames: a missing one, a repeated
// one, or more data than the window allows.
func TestForged(t *testing.T) {
	url := embedded(t)
	stranger, err := client.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for name, frames := range map[string][][]byte{
		"a missing frame":      {{3, 0, 0, 0, 9, 'x'}},
		"a repeated frame":     {{3, 0, 0, 0, 0, 'x'}},
		"an invalid frame":     {[]byte("hello")},
		"accepted twice":       {{2, 0, 0, 0, 1, 0, 0, 0, 1}},
		"unlimited credit":     {{4, 0, 0, 0, 1, 255, 255, 255, 255}},
		"more than the window": {append([]byte{3, 0, 0, 0, 1}, make([]byte, smallWindow+1)...)},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := pair(t, open(t, url), openWith(t, nats.Config{URLs: []string{url}, Window: smallWindow}))
			subject := nats.SubjectOf(other)
			for _, f := range frames {
				if err := stranger.Publish(subject, f); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []net.Conn{other, one} {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if n, err := io.Copy(io.Discard, c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("read %d bytes and %v, want a broken connection", n, err)
				}
			}
		})
	}
}
