package fabrictest

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// port is the port that the test machine listens on.
const port = 8080

// serveMachine adds a worker with one machine. The machine passes each connection to behave, and closes it when behave
// returns.
func serveMachine(t *testing.T, n Network, behave func(net.Conn)) Worker {
	var mux http.ServeMux
	fabric.MachineTunnel.Handle(&mux, func(w http.ResponseWriter, r *http.Request, to fabric.TunnelRequest) {
		if to != (fabric.TunnelRequest{Machine: machine, Port: port}) {
			fabric.WriteFailure(w, bourse.Errorf(bourse.CodeForbidden, "wrong port"))
			return
		}
		ours, its, err := connected(t)
		if err != nil {
			fabric.WriteFailure(w, err)
			return
		}
		go func() {
			behave(its)
			its.Close()
		}()
		fabric.ServeTunnel(w, r, ours)
	})
	return n.Serve("w1", &mux)
}

// dialPort connects to the port of a worker's machine.
func dialPort(t *testing.T, n Network, w Worker) *fabric.Tunnel {
	t.Helper()
	c, err := fabric.DialTunnel(soon(t), n.Fabric(), w.Member, fabric.TunnelRequest{Machine: machine, Port: port})
	if err != nil {
		t.Fatalf("tunnel: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func testTunnelConn(t *testing.T, n Network) {
	t.Run("either side can be closed separately", func(t *testing.T) { tunnelEnds(t, n) })
	t.Run("large bodies pass concurrently", func(t *testing.T) { tunnelLarge(t, n) })
	t.Run("a hundred do not mix", func(t *testing.T) { tunnelMany(t, n) })
	t.Run("a reader that stops blocks the sender", func(t *testing.T) { tunnelFull(t, n) })
	t.Run("it has deadlines", func(t *testing.T) { tunnelDeadlines(t, n) })
	t.Run("an abort is not EOF", func(t *testing.T) { tunnelBreaks(t, n) })
	t.Run("a tunnel can be refused", func(t *testing.T) {
		w := serveMachine(t, n, func(net.Conn) {})
		_, err := fabric.DialTunnel(soon(t), n.Fabric(), w.Member, fabric.TunnelRequest{Machine: machine, Port: 22})
		wantCode(t, err, bourse.CodeForbidden)
		elsewhere := w.Member
		elsewhere.ID = "w0"
		_, err = fabric.DialTunnel(soon(t), n.Fabric(), elsewhere, fabric.TunnelRequest{Machine: machine, Port: port})
		wantCode(t, err, bourse.CodeUnavailable)
	})
}

func tunnelEnds(t *testing.T, n Network) {
	heard := make(chan string, 1)
	c := dialPort(t, n, serveMachine(t, n, func(c net.Conn) {
		_, _ = io.WriteString(c, "nothing more follows")
		_ = c.(*net.TCPConn).CloseWrite()
		got, err := io.ReadAll(c)
		if err != nil {
			t.Errorf("the machine's read: %v", err)
		}
		heard <- string(got)
	}))
	if got, err := io.ReadAll(c); err != nil || string(got) != "nothing more follows" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := io.WriteString(c, "but I have"); err != nil {
		t.Errorf("write after the machine closed its side: %v", err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Error(err)
	}
	if got := <-heard; got != "but I have" {
		t.Errorf("the machine got %q, want \"but I have\"", got)
	}
	c = dialPort(t, n, serveMachine(t, n, func(c net.Conn) {
		_, _ = io.Copy(c, c)
		_, _ = io.WriteString(c, " and bye")
	}))
	_, err := io.WriteString(c, "hello")
	if err := errors.Join(err, c.CloseWrite()); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello and bye" {
		t.Errorf("got %q, %v", got, err)
	}
}

func tunnelLarge(t *testing.T, n Network) {
	there, _, _ := sumOf(noise(1))
	back, _, _ := sumOf(noise(2))
	c := dialPort(t, n, serveMachine(t, n, func(c net.Conn) {
		var both sync.WaitGroup
		both.Go(func() {
			if got, n, err := sumOf(c); err != nil || got != there {
				t.Errorf("the machine received %d bytes (%v), want the bytes that were sent", n, err)
			}
		})
		_, err := io.Copy(c, noise(2))
		if err := errors.Join(err, c.(*net.TCPConn).CloseWrite()); err != nil {
			t.Error(err)
		}
		both.Wait()
	}))
	var sending sync.WaitGroup
	sending.Go(func() {
		_, err := io.Copy(c, noise(1))
		if err := errors.Join(err, c.CloseWrite()); err != nil {
			t.Error(err)
		}
	})
	if got, n, err := sumOf(c); err != nil || got != back {
		t.Errorf("got %d bytes (%v), want the bytes that the machine sent", n, err)
	}
	sending.Wait()
}

func tunnelMany(t *testing.T, n Network) {
	w := serveMachine(t, n, func(c net.Conn) { _, _ = io.Copy(c, c) })
	var all sync.WaitGroup
	for i := range 100 {
		c := dialPort(t, n, w)
		all.Go(func() {
			want := string(rune('A'+i)) + " and its own words"
			_, err := io.WriteString(c, want)
			if err := errors.Join(err, c.CloseWrite()); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(c); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
	all.Wait()
}

// tunnelFull checks that the sender blocks if the machine does not read.
func tunnelFull(t *testing.T, n Network) {
	release := make(chan struct{})
	c := dialPort(t, n, serveMachine(t, n, func(net.Conn) { <-release }))
	defer close(release)
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	sent, err := io.Copy(c, endless{})
	if !errors.Is(err, os.ErrDeadlineExceeded) || sent > 256<<20 {
		t.Errorf("sent %d bytes, then got %v, want a timeout after at most 256 MiB", sent, err)
	}
}

func tunnelDeadlines(t *testing.T, n Network) {
	c := dialPort(t, n, serveMachine(t, n, func(c net.Conn) { _, _ = io.Copy(c, c) }))
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read after the deadline: got %v, want a timeout", err)
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "again"); err != nil {
		t.Error(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "again" {
		t.Errorf("after a new deadline: got %q, %v, want \"again\"", got, err)
	}
}

func tunnelBreaks(t *testing.T, n Network) {
	began := make(chan struct{}, 1)
	waits := func(c net.Conn) {
		_, _ = io.WriteString(c, "the beginning")
		began <- struct{}{}
		_, _ = io.Copy(io.Discard, c) // until the connection ends
	}
	var w Worker
	for name, cut := range map[string]func(){"the machine's": nil, "the worker's": func() { <-began; w.Kill() }} {
		w = serveMachine(t, n, func(c net.Conn) {
			if cut == nil {
				_, _ = c.Read(make([]byte, 1)) // once a byte has arrived, the tunnel exists and can break
				_ = c.(*net.TCPConn).SetLinger(0)
				return
			}
			waits(c)
		})
		c := dialPort(t, n, w)
		if cut != nil {
			cut()
		} else if _, err := io.WriteString(c, "x"); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %q, %v, want an error before the deadline", name, got, err)
		}
	}
	left := make(chan struct{})
	c := dialPort(t, n, serveMachine(t, n, func(c net.Conn) { waits(c); close(left) }))
	<-began
	c.Close()
	await(t, "the machine to notice that the caller disconnected", left)
}
