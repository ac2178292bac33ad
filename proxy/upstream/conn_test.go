package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/proxy/upstream"
)

const patience = time.Minute

// program starts an HTTP server, which acts as a machine's program, and returns its address.
func program(t *testing.T) *net.TCPAddr {
	t.Helper()
	ln := listen(t)
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex() // otherwise, the reply would end the reading of the body
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "the beginning")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: patience}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { _ = s.Close(); serving.Wait() })
	return ln.Addr().(*net.TCPAddr)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// serve serves a worker's API until the test ends or kill is called.
func serve(t *testing.T, ln net.Listener, h http.Handler) (kill func()) {
	var serving sync.WaitGroup
	serving.Go(func() { _ = direct.Serve(t.Context(), ln, direct.Handler("w1", h), nil, slog.New(slog.DiscardHandler)) })
	kill = sync.OnceFunc(func() { ln.Close(); serving.Wait() })
	t.Cleanup(kill)
	return kill
}

// reached is a machine behind a real worker. It is reached either directly or through a tunnel.
type reached struct {
	ways *upstream.Pool
	kill func() // kills the machine's worker
}

// networks runs test for each kind of connection to a machine.
func networks(t *testing.T, test func(*testing.T, *reached)) {
	for name, tt := range map[string]struct{ nats, here bool }{"directly": {here: true}, "a tunnel over TCP": {}, "a tunnel over NATS": {nats: true, here: true}} {
		t.Run(name, func(t *testing.T) {
			at := program(t)
			w := newWorker()
			w.reply.Port, w.reply.Address = at.Port, at.String() // what an honest worker on the same host reports
			w.dial = func() (net.Conn, error) { return net.Dial("tcp", at.String()) }
			config := upstream.Config{Self: "p1", Host: loopback.HostID(), Log: slog.New(slog.DiscardHandler)}
			if !tt.here {
				config.Host = ""
			}
			var r reached
			if tt.nats {
				r.kill = overNATS(t, w, &config)
			} else {
				ln := listen(t)
				r.kill = serve(t, ln, w.handler())
				f := direct.New(nil)
				t.Cleanup(f.Close)
				config.Fabric, config.Directory = f, member(ln.Addr().String())
			}
			r.ways = upstream.New(config)
			running(t, r.ways)
			test(t, &r)
		})
	}
}

func overNATS(t *testing.T, w *worker, config *upstream.Config) (kill func()) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server did not start")
	}
	link := func() *nats.Link {
		l, err := nats.Open(t.Context(), nats.Config{URLs: []string{s.ClientURL()}, Cluster: "test", PeerTimeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		return l
	}
	its, ours := link(), link()
	kill = serve(t, its.Listen(nats.PortAPI), w.handler())
	f := direct.NewOver(func(ctx context.Context, _, address string) (net.Conn, error) { return ours.Dial(ctx, address) }, nil, admission.Proof{})
	t.Cleanup(f.Close)
	config.Fabric, config.Directory = f, member(its.HostPort(nats.PortAPI))
	return kill
}

// client returns an upstream for the machine, and a client that sends requests to the machine as a proxy does.
func (r *reached) client(t *testing.T) (*upstream.Upstream, *http.Client) {
	t.Helper()
	y := use(t, r.ways)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return y.Dial(ctx) }, MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return y, &http.Client{Transport: transport, Timeout: patience}
}

func post(t *testing.T, c *http.Client, path string, body io.Reader) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://machine"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(req)
}

// TestRequestsOverEachWay sends many concurrent requests, some of them large.
func TestRequestsOverEachWay(t *testing.T) {
	networks(t, func(t *testing.T, r *reached) {
		_, client := r.client(t)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				want := strings.Repeat("request "+strconv.Itoa(i)+" ", 1000)
				resp, err := post(t, client, "/echo", strings.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
					t.Errorf("request %d: the reply differs: %v", i, err)
				}
			})
		}
		all.Wait()
		resp, err := post(t, client, "/echo", io.LimitReader(zeros{}, 64<<20))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 64<<20 {
			t.Errorf("%d bytes came back, %v", n, err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestHalfClose checks that the sending side of a connection can be closed separately.
func TestHalfClose(t *testing.T) {
	networks(t, func(t *testing.T, r *reached) {
		y := use(t, r.ways)
		c, err := y.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /echo HTTP/1.0\r\nHost: machine\r\nContent-Length: 5\r\n\r\nhello")
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(got), "\r\n\r\nhello") {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestTheWorkerDies kills the worker in the middle of a reply. If the reply comes through a tunnel, the connection must
// break without ending the reply properly. A direct connection must continue.
func TestTheWorkerDies(t *testing.T) {
	networks(t, func(t *testing.T, r *reached) {
		y, client := r.client(t)
		resp, err := post(t, client, "/hang", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, len("the beginning"))); err != nil {
			t.Fatal(err)
		}
		r.kill()
		if strings.HasSuffix(t.Name(), "directly") {
			resp, err := post(t, client, "/echo", strings.NewReader("still here"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "still here" {
				t.Errorf("got %q, %v", got, err)
			}
			return
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the reply ended with %v", err)
		}
		if _, err := y.Dial(t.Context()); bourse.CodeOf(err) != bourse.CodeUnavailable || !ended(y) {
			t.Errorf("dial after the connection broke: %v", err)
		}
	})
}

// TestAWorkerElsewhereIsNotBelieved checks that a direct address is never used if it was reported
// by a worker on another host.
func TestAWorkerElsewhereIsNotBelieved(t *testing.T) {
	secret := listen(t)
	defer secret.Close()
	at := secret.Addr().(*net.TCPAddr)
	for name, tt := range map[string]struct {
		worker, address string
		host            string
		port            int
		direct          bool
	}{
		"a worker on this host":           {worker: "127.0.0.1:4281", address: at.String(), host: loopback.HostID(), port: at.Port, direct: true},
		"a worker on another host":        {worker: "192.0.2.7:4281", address: at.String(), host: loopback.HostID(), port: at.Port},
		"a worker on NATS":                {worker: "[fd6e:6174:73f3:b9bf:821d:98ae:5e72:34d3]:1", address: at.String(), host: loopback.HostID(), port: at.Port},
		"an address that is not loopback": {worker: "127.0.0.1:4281", address: net.JoinHostPort("192.0.2.1", strconv.Itoa(at.Port)), host: loopback.HostID(), port: at.Port},
		"a host name":                     {worker: "127.0.0.1:4281", address: net.JoinHostPort("localhost", strconv.Itoa(at.Port)), host: loopback.HostID(), port: at.Port},
		"another port than the machine's": {worker: "127.0.0.1:4281", address: at.String(), host: loopback.HostID(), port: at.Port - 1},
		"a proxy without a host ID":       {worker: "127.0.0.1:4281", address: at.String(), host: "", port: at.Port},
	} {
		w := newWorker()
		w.reply.Address, w.reply.Port = tt.address, tt.port
		tunneled := false
		w.dial = func() (net.Conn, error) {
			tunneled = true
			return nil, bourse.Errorf(bourse.CodeUnavailable, "nothing listens")
		}
		ways := upstream.New(upstream.Config{Fabric: fabrictest.Serving(w.handler()), Directory: member(tt.worker), Self: "p1", Host: tt.host, Log: slog.New(slog.DiscardHandler)})
		c, err := use(t, ways).Dial(t.Context())
		if err == nil {
			_ = c.Close()
		}
		if tt.direct != (err == nil) || tt.direct == tunneled {
			t.Errorf("%s: connected: %v, used the tunnel: %v", name, err == nil, tunneled)
		}
	}
}
