package broker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestExecStreams(t *testing.T) {
	bothProtocols(t, func(t *testing.T, s *streaming) {
		s.run = func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
			fmt.Fprintln(e.Stderr, strings.Join(e.Start.Command, " "))
			_, err := io.Copy(e.Stdout, e.Stdin)
			return bourse.Exit{Code: 3}, err
		}
		command, err := s.client.ExecStream(t.Context(), "shop", s.m.ID, machinesapi.ExecStart{Command: []string{"cat", "-"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		sent := make([]byte, 4<<20)
		_, _ = rand.Read(sent)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := command.Write(sent)
			if err := errors.Join(err, command.CloseWrite()); err != nil {
				t.Errorf("input: %v", err)
			}
		})
		var stdout, stderr bytes.Buffer
		exit, err := command.Copy(&stdout, &stderr)
		wg.Wait()
		if err != nil || exit.Code != 3 || stderr.String() != "cat -\n" || !bytes.Equal(stdout.Bytes(), sent) {
			t.Errorf("got %+v, %v, %q and %d bytes", exit, err, stderr.String(), stdout.Len())
		}
	})
}

func TestExecStreamTerminal(t *testing.T) {
	bothProtocols(t, func(t *testing.T, s *streaming) {
		s.run = func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
			_, _ = e.Stdout.Write([]byte("$ "))
			var key [1]byte
			for {
				if _, err := io.ReadFull(e.Stdin, key[:]); err != nil || key[0] == 'q' {
					size := <-e.Resize
					fmt.Fprintf(e.Stdout, "%d %s", size.Cols, e.Start.Terminal.Term)
					return bourse.Exit{}, err
				}
				_, _ = e.Stdout.Write(key[:])
			}
		}
		command, err := s.client.ExecStream(t.Context(), "shop", s.m.ID, machinesapi.ExecStart{
			Command: []string{"sh"}, Stdin: true, Terminal: &machinesapi.Terminal{Term: "vt100"},
		})
		if err != nil {
			t.Fatal(err)
		}
		// Each key is typed after the echo of the previous one.
		keys := "abcq"
		var seen strings.Builder
		out := writerFunc(func(p []byte) (int, error) {
			seen.Write(p)
			if keys != "" {
				if keys == "q" {
					if err := command.Resize(machinesapi.TerminalSize{Rows: 1, Cols: 99}); err != nil {
						t.Errorf("resize: %v", err)
					}
				}
				if _, err := io.WriteString(command, keys[:1]); err != nil {
					t.Errorf("type: %v", err)
				}
				keys = keys[1:]
			}
			return len(p), nil
		})
		if exit, err := command.Copy(out, io.Discard); err != nil || exit.Code != 0 || seen.String() != "$ abc99 vt100" {
			t.Errorf("got %+v, %v, %q", exit, err, seen.String())
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestExecStreamEnds(t *testing.T) {
	start := machinesapi.ExecStart{Command: []string{"sh"}, Stdin: true}
	bothProtocols(t, func(t *testing.T, s *streaming) {
		ended := make(chan error, 1)
		s.run = func(ctx context.Context, e fabric.ExecIO) (bourse.Exit, error) {
			_, _ = io.WriteString(e.Stdout, "x")
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return bourse.Exit{}, ctx.Err()
		}
		for name, leave := range map[string]func(*machinesapi.ExecStream, context.CancelFunc){
			"the stream is closed": func(c *machinesapi.ExecStream, _ context.CancelFunc) { c.Close() },
			"its context ends":     func(_ *machinesapi.ExecStream, end context.CancelFunc) { end() },
		} {
			ctx, end := context.WithCancel(t.Context())
			command, err := s.client.ExecStream(ctx, "shop", s.m.ID, start)
			if err != nil {
				t.Fatal(err)
			}
			leave(command, end)
			select {
			case err := <-ended:
				if bourse.CodeOf(err) != bourse.CodeCanceled {
					t.Errorf("%s: the command ended because of %v", name, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: the command continues", name)
			}
			if _, err := command.Copy(io.Discard, io.Discard); err == nil {
				t.Errorf("%s: the stream ended without an error", name)
			}
			end()
		}
		s.run = func(_ context.Context, e fabric.ExecIO) (bourse.Exit, error) {
			_, _ = io.WriteString(e.Stdout, "x")
			panic(http.ErrAbortHandler) // aborts the reply, as if the worker had died
		}
		command, err := s.client.ExecStream(t.Context(), "shop", s.m.ID, start)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := command.Copy(io.Discard, io.Discard); bourse.CodeOf(err) != bourse.CodeTimeout {
			t.Errorf("when the worker dies: %v", err)
		}
		s.run = func(context.Context, fabric.ExecIO) (bourse.Exit, error) {
			return bourse.Exit{}, bourse.Errorf(bourse.CodeInvalid, "sh not found")
		}
		if command, err = s.client.ExecStream(t.Context(), "shop", s.m.ID, start); err != nil {
			t.Fatal(err)
		}
		if _, err := command.Copy(io.Discard, io.Discard); bourse.CodeOf(err) != bourse.CodeInvalid || err.Error() != "sh not found" {
			t.Errorf("a missing command: %v", err)
		}
	})
}

// TestStreamsAreRefusedImmediately checks that a stream is refused without waiting for the end of the request's body.
func TestStreamsAreRefusedImmediately(t *testing.T) {
	bothProtocols(t, func(t *testing.T, s *streaming) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := machinesapi.ExecStart{Command: []string{"sh"}, Stdin: true}
		for name, tt := range map[string]struct {
			app  bourse.AppName
			id   bourse.MachineID
			code bourse.Code
		}{
			"a machine of another app": {"blog", s.m.ID, bourse.CodeNotFound},
			"an invalid machine ID":    {"shop", "x", bourse.CodeNotFound},
			"an invalid app name":      {"../x", s.m.ID, bourse.CodeNotFound},
		} {
			if _, err := s.client.ExecStream(ctx, tt.app, tt.id, start); bourse.CodeOf(err) != tt.code {
				t.Errorf("exec on %s: %v", name, err)
			}
			if _, err := s.client.Tunnel(ctx, tt.app, tt.id, 80); bourse.CodeOf(err) != tt.code {
				t.Errorf("tunnel to %s: %v", name, err)
			}
		}
		if _, err := s.client.ExecStream(ctx, "shop", s.m.ID, machinesapi.ExecStart{}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("exec without a command: %v", err)
		}
		if _, err := s.client.Tunnel(ctx, "shop", s.m.ID, 0); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("tunnel to port 0: %v", err)
		}
		s.dial = func() (net.Conn, error) { return nil, errors.New("connection refused") }
		if _, err := s.client.Tunnel(ctx, "shop", s.m.ID, 80); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("tunnel to a port without a listener: %v", err)
		}
	})
}

func TestTunnel(t *testing.T) {
	bothProtocols(t, func(t *testing.T, s *streaming) {
		// The program in the machine is a small HTTP server.
		inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, io.MultiReader(strings.NewReader("got "), r.Body))
		}))
		defer inside.Close()
		s.dial = func() (net.Conn, error) {
			return (&net.Dialer{}).DialContext(t.Context(), "tcp", inside.Listener.Addr().String())
		}
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			tunnel, err := s.client.Tunnel(context.WithoutCancel(ctx), "shop", s.m.ID, 80)
			if err != nil {
				return nil, err
			}
			return tunnelConn{tunnel}, nil
		}}
		defer transport.CloseIdleConnections()
		for i := range 3 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://machine/", strings.NewReader(fmt.Sprint("request ", i)))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprint("got request ", i); err != nil || string(got) != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
	})
}

// tunnelConn makes a tunnel usable as a net.Conn.
type tunnelConn struct{ *machinesapi.Tunnel }

func (tunnelConn) LocalAddr() net.Addr              { return nil }
func (tunnelConn) RemoteAddr() net.Addr             { return nil }
func (tunnelConn) SetDeadline(time.Time) error      { return nil }
func (tunnelConn) SetReadDeadline(time.Time) error  { return nil }
func (tunnelConn) SetWriteDeadline(time.Time) error { return nil }
