package fabrictest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

const machine = bourse.MachineID("148e21ea1d5389")

// running returns a handler that serves MachineAttach by calling run instead of running a command.
func running(run func(context.Context, fabric.ExecIO) (bourse.Exit, error)) http.Handler {
	var mux http.ServeMux
	fabric.MachineAttach.Handle(&mux, func(w http.ResponseWriter, r *http.Request, _ bourse.MachineID) { fabric.ServeExec(w, r, run) })
	return &mux
}

func testExec(t *testing.T, n Network) {
	const lines = 200_000
	w := n.Serve("w1", running(func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
		if e.Start.Terminal != nil || e.Resize != nil || strings.Join(e.Start.Command, " ") != "tee 2" {
			t.Errorf("got command %+v, want tee 2 without a terminal", e.Start)
		}
		_, err := io.Copy(io.MultiWriter(e.Stdout, e.Stderr), e.Stdin)
		return bourse.Exit{Code: 7}, err
	}))
	s, err := Attach(soon(t), n.Fabric(), w.Member, machine, fabric.ExecStart{Command: []string{"tee", "2"}, Stdin: true})
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	var wg sync.WaitGroup
	var sent bytes.Buffer
	wg.Go(func() {
		for i := range lines {
			fmt.Fprintln(&sent, i)
		}
		_, err := s.Write(sent.Bytes())
		if err = errors.Join(err, s.CloseWrite()); err != nil {
			t.Errorf("input: %v", err)
		}
	})
	var stdout, stderr bytes.Buffer
	exit, err := s.Copy(&stdout, &stderr)
	wg.Wait()
	if err != nil || exit.Code != 7 {
		t.Errorf("got %+v, %v, want code 7", exit, err)
	}
	if !bytes.Equal(stdout.Bytes(), sent.Bytes()) || !bytes.Equal(stderr.Bytes(), sent.Bytes()) {
		t.Errorf("sent %d bytes, got %d on stdout and %d on stderr, want the same bytes", sent.Len(), stdout.Len(), stderr.Len())
	}
	if _, err := s.Write([]byte("late")); err == nil {
		t.Error("write after the command ended: got no error")
	}
}

func testExecTerminal(t *testing.T, n Network) {
	w := n.Serve("w1", running(func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
		fmt.Fprintln(e.Stdout, e.Start.Terminal.Size, e.Start.Terminal.Term, e.Stdin == nil)
		fmt.Fprintln(e.Stdout, <-e.Resize)
		return bourse.Exit{Code: -1, Signal: 2}, nil
	}))
	start := fabric.ExecStart{Command: []string{"top"}, Terminal: &fabric.Terminal{Size: fabric.Size{Rows: 24, Cols: 80}, Term: "vt100"}}
	s, err := Attach(soon(t), n.Fabric(), w.Member, machine, start)
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	if err := s.Resize(fabric.Size{Rows: 50, Cols: 1000}); err != nil {
		t.Errorf("resize: %v", err)
	}
	var out strings.Builder
	exit, err := s.Copy(&out, nil)
	if want := "{24 80} vt100 true\n{50 1000}\n"; err != nil || exit.Signal != 2 || out.String() != want {
		t.Errorf("got %q, %+v, %v, want %q", out.String(), exit, err, want)
	}
}

func testExecEnds(t *testing.T, n Network) {
	start := fabric.ExecStart{Command: []string{"sh"}, Stdin: true}
	t.Run("with an error", func(t *testing.T) {
		w := n.Serve("w1", running(func(context.Context, fabric.ExecIO) (bourse.Exit, error) {
			return bourse.Exit{}, bourse.Errorf(bourse.CodeInvalid, "sh not found")
		}))
		s, err := Attach(soon(t), n.Fabric(), w.Member, machine, start)
		if err != nil {
			t.Fatalf("exec: %v", err)
		}
		_, err = s.Copy(io.Discard, io.Discard)
		if bourse.CodeOf(err) != bourse.CodeInvalid || err.Error() != "sh not found" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("with input that is not read", func(t *testing.T) {
		w := n.Serve("w1", running(func(context.Context, fabric.ExecIO) (bourse.Exit, error) { return bourse.Exit{}, nil }))
		s, err := Attach(soon(t), n.Fabric(), w.Member, machine, start)
		if err != nil {
			t.Fatalf("exec: %v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(s, endless{}) })
		if _, err := s.Copy(io.Discard, io.Discard); err != nil {
			t.Errorf("got %v", err)
		}
		wg.Wait()
	})
	t.Run("when the caller closes the stream", func(t *testing.T) {
		ended := make(chan error, 1)
		w := n.Serve("w1", running(func(ctx context.Context, _ fabric.ExecIO) (bourse.Exit, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return bourse.Exit{}, ctx.Err()
		}))
		s, err := Attach(soon(t), n.Fabric(), w.Member, machine, start)
		if err != nil {
			t.Fatalf("exec: %v", err)
		}
		s.Close()
		if err := <-ended; bourse.CodeOf(err) != bourse.CodeCanceled {
			t.Errorf("got cause %v, want code canceled", err)
		}
	})
	t.Run("when the worker dies", func(t *testing.T) {
		began := make(chan struct{})
		w := n.Serve("w1", running(func(ctx context.Context, e fabric.ExecIO) (bourse.Exit, error) {
			_, _ = io.WriteString(e.Stdout, "working")
			close(began)
			<-ctx.Done()
			return bourse.Exit{}, ctx.Err()
		}))
		s, err := Attach(soon(t), n.Fabric(), w.Member, machine, start)
		if err != nil {
			t.Fatalf("exec: %v", err)
		}
		<-began
		w.Kill()
		_, err = s.Copy(io.Discard, io.Discard)
		wantUnknown(t, err)
	})
}

func testTunnel(t *testing.T, n Network) {
	machineEnd := func(behave func(net.Conn)) Worker {
		var mux http.ServeMux
		fabric.MachineTunnel.Handle(&mux, func(w http.ResponseWriter, r *http.Request, to fabric.TunnelRequest) {
			if to != (fabric.TunnelRequest{Machine: machine, Port: 8080}) {
				t.Errorf("got request %+v, want port 8080 of the test machine", to)
			}
			ours, its, err := connected(t)
			if err != nil {
				fabric.WriteFailure(w, err)
				return
			}
			go behave(its)
			fabric.ServeTunnel(w, r, ours)
		})
		return n.Serve("w1", &mux)
	}
	t.Run("bytes pass until the machine ends", func(t *testing.T) {
		w := machineEnd(func(c net.Conn) {
			_, _ = io.Copy(c, c) // until the caller closes its sending side
			_, _ = io.WriteString(c, "bye")
			c.Close()
		})
		got, err := talk(t, n, w, "hello ")
		if err != nil || got != "hello bye" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("the tunnel ends when the machine closes its connection", func(t *testing.T) {
		w := machineEnd(func(c net.Conn) {
			_, _ = io.WriteString(c, "busy")
			c.Close()
		})
		tunnel := dig(t, n, w)
		if got, err := io.ReadAll(tunnel); err != nil || string(got) != "busy" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("a broken machine connection is not EOF", func(t *testing.T) {
		w := machineEnd(func(c net.Conn) {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		})
		_, err := io.ReadAll(dig(t, n, w))
		wantUnknown(t, err)
	})
	t.Run("the connection ends when the caller disconnects", func(t *testing.T) {
		left := make(chan struct{})
		w := machineEnd(func(c net.Conn) {
			_, _ = io.Copy(io.Discard, c)
			c.Close()
			close(left)
		})
		dig(t, n, w).Close()
		await(t, "the machine to notice that the caller disconnected", left)
	})
}

// tunnel is a connection to a machine's port.
type tunnel struct {
	io.ReadCloser
	*io.PipeWriter
}

// Close ends the connection.
func (t *tunnel) Close() error {
	_ = t.CloseWithError(http.ErrAbortHandler) // has no effect if the sending side is closed already
	return t.ReadCloser.Close()
}

func dig(t *testing.T, n Network, w Worker) *tunnel {
	t.Helper()
	r, sent := io.Pipe()
	reply, err := fabric.MachineTunnel.Open(soon(t), n.Fabric(), w.Member, fabric.TunnelRequest{Machine: machine, Port: 8080}, r)
	if err != nil {
		t.Fatalf("tunnel: %v", err)
	}
	out := &tunnel{reply, sent}
	t.Cleanup(func() { out.Close() })
	return out
}

func talk(t *testing.T, n Network, w Worker, text string) (string, error) {
	t.Helper()
	tunnel := dig(t, n, w)
	_, err := io.WriteString(tunnel, text)
	if err = errors.Join(err, tunnel.PipeWriter.Close()); err != nil {
		return "", err
	}
	got, err := io.ReadAll(tunnel)
	return string(got), err
}

// connected returns the two ends of a TCP connection.
func connected(t *testing.T) (net.Conn, net.Conn, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	one, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	other, err := ln.Accept()
	return one, other, err
}
