package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/bourse-dev/bourse/internal/throttle"
)

// describe responds with a description of the request as the server sees it.
var describe = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s from %s", r.Proto, r.RemoteAddr)
})

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	client.CloseIdleConnections()
	return string(text)
}

// TestProtocols checks that HTTP/1.1 and HTTP/2 work, both with and without TLS.
func TestProtocols(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	ca.write(t, dir, "web", "web.example.com")
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	plain, secure := web(t, describe, false), web(t, describe, true)
	start(t, Config{Web: []Web{plain, secure}, Certificates: &Certificates{Files: files}})
	for _, c := range []struct {
		name string
		set  func(*http.Protocols)
		url  string
		want string
	}{
		{"HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }, "http://" + plain.Addr().String(), "HTTP/1.1"},
		{"h2c", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, "http://" + plain.Addr().String(), "HTTP/2.0"},
		{"HTTP/1.1 over TLS", func(p *http.Protocols) { p.SetHTTP1(true) }, "https://" + secure.Addr().String(), "HTTP/1.1"},
		{"h2", func(p *http.Protocols) { p.SetHTTP2(true) }, "https://" + secure.Addr().String(), "HTTP/2.0"},
	} {
		var protocols http.Protocols
		c.set(&protocols)
		client := &http.Client{Timeout: waitLimit, Transport: &http.Transport{
			Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: ca.pool, ServerName: "web.example.com"},
		}}
		if got := get(t, client, c.url); !strings.HasPrefix(got, c.want+" from 127.0.0.1:") {
			t.Errorf("%s: %q, want %s", c.name, got, c.want)
		}
	}
}

// exchange sends text and returns all received data.
func exchange(t *testing.T, l net.Listener, text string) string {
	t.Helper()
	c := dial(t, l)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(c) // ignore the error, because the server may abort the connection
	return string(got)
}

const closing = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

// TestProxyHeader checks that load balancers must send a PROXY header, and that other clients must not.
func TestProxyHeader(t *testing.T) {
	t.Parallel()
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	known, other := web(t, describe, false), web(t, describe, false)
	start(t, Config{Web: []Web{known}, LoadBalancers: loopback, Limits: Limits{Handshake: time.Second}})
	start(t, Config{Web: []Web{other}, LoadBalancers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	v2 := func(h *proxyproto.Header) string {
		b, err := h.Format()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	from, to := &net.TCPAddr{IP: net.ParseIP("203.0.113.7"), Port: 5678}, &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 80}
	from6, to6 := &net.TCPAddr{IP: net.ParseIP("2001:db8::7"), Port: 5678}, &net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}
	for name, c := range map[string]struct{ header, want string }{
		"v1":         {"PROXY TCP4 203.0.113.7 192.0.2.1 5678 80\r\n", "from 203.0.113.7:5678"},
		"v1, v6":     {"PROXY TCP6 2001:db8::7 2001:db8::1 5678 80\r\n", "from [2001:db8::7]:5678"},
		"v1 unknown": {"PROXY UNKNOWN\r\n", "from 127.0.0.1:"},
		"v2":         {v2(proxyproto.HeaderProxyFromAddrs(2, from, to)), "from 203.0.113.7:5678"},
		"v2, v6":     {v2(proxyproto.HeaderProxyFromAddrs(2, from6, to6)), "from [2001:db8::7]:5678"},
		"v2 local":   {v2(&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL}), "from 127.0.0.1:"},
	} {
		if got := exchange(t, known, c.header+closing); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := exchange(t, other, c.header+closing); strings.Contains(got, "203.0.113.7") || !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("%s from an untrusted address: %q, want status 400", name, got)
		}
	}
	udp := v2(&proxyproto.Header{
		Version: 2, Command: proxyproto.PROXY, TransportProtocol: proxyproto.UDPv4,
		SourceAddr: &net.UDPAddr{IP: from.IP, Port: 1}, DestinationAddr: &net.UDPAddr{IP: to.IP, Port: 2},
	})
	for name, text := range map[string]string{
		"none": closing, "cut short": "PROXY TCP4 203.0", "malformed": "PROXY TCP4 a b c d\r\n" + closing, "of UDP": udp + closing,
	} {
		if got := exchange(t, known, text); strings.Contains(got, " 200 ") {
			t.Errorf("%s: %q, want no success", name, got)
		}
	}
	if got := exchange(t, other, closing); !strings.Contains(got, "from 127.0.0.1:") {
		t.Errorf("without a header, from a client that need not send one: %q", got)
	}
}

// TestBounds checks that a source with many connections does not prevent other sources from
// connecting.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := web(t, describe, false)
	start(t, Config{Web: []Web{w}, Limits: Limits{Connections: 3, PerSource: 2}})
	from := func(ip string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Deadline: time.Now().Add(waitLimit)}
		c, err := d.DialContext(t.Context(), "tcp", w.Addr().String())
		if errors.Is(err, syscall.ECONNRESET) {
			return nil // the connection was refused while dialing
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(waitLimit))
		return c
	}
	served := func(c net.Conn) bool {
		if c == nil {
			return false
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			return false
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}
	a, b := from("127.0.0.2"), from("127.0.0.2")
	if !served(a) || !served(b) || served(from("127.0.0.2")) {
		t.Error("one address must get two connections, but not three")
	}
	if !served(from("127.0.0.3")) || served(from("127.0.0.4")) {
		t.Error("all addresses together must get three connections, but not four")
	}
	_ = a.Close()
	for end := time.Now().Add(waitLimit); !served(from("127.0.0.4")); {
		if time.Now().After(end) {
			t.Fatal("a closed connection was not replaced by another")
		}
	}
}

// TestTheLargestSourceGivesWay checks that, if the process has no free connections, a new source takes one from the
// source with the most connections.
func TestTheLargestSourceGivesWay(t *testing.T) {
	t.Parallel()
	w := web(t, describe, false)
	start(t, Config{Web: []Web{w}, Clients: throttle.NewFairBudget(3)})
	from := func(ip string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Deadline: time.Now().Add(waitLimit)}
		c, err := d.DialContext(t.Context(), "tcp", w.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(waitLimit))
		return c
	}
	served := func(c net.Conn) bool {
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}
	var crowd []net.Conn
	for range 3 {
		c := from("127.0.0.2")
		if !served(c) {
			t.Fatal("a single source cannot use all connections")
		}
		crowd = append(crowd, c)
	}
	if !served(from("127.0.0.3")) {
		t.Error("another source cannot get a connection")
	}
	if served(crowd[0]) || !served(crowd[1]) || !served(crowd[2]) {
		t.Error("the closed connection is not the oldest one of the source with the most connections")
	}
}

// TestDrain checks that, when the proxy stops, requests in progress and WebSockets get time to end, no new ones are
// accepted, and those that take too long are aborted.
func TestDrain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path string
		drain      time.Duration
		ends       bool
	}{
		{"ends in time", "/", time.Minute, true},
		{"takes too long", "/", time.Millisecond, false},
		{"a WebSocket ends in time", "/upgrade", time.Minute, true},
		{"a WebSocket takes too long", "/upgrade", time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			began, end, cut := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			w := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				answer := func(text string) { _, _ = io.WriteString(w, text) }
				if r.URL.Path == "/upgrade" {
					conn, _, err := http.NewResponseController(w).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close()
					answer = func(text string) { _, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n"+text) }
				}
				close(began)
				select {
				case <-end:
					answer("done")
				case <-r.Context().Done():
					cut <- context.Cause(r.Context())
				}
			}), false)
			stop := start(t, Config{Web: []Web{w}, Limits: Limits{Drain: c.drain}})
			conn := dial(t, w)
			if _, err := io.WriteString(conn, strings.Replace(closing, "/", c.path, 1)); err != nil {
				t.Fatal(err)
			}
			<-began
			stopped := make(chan struct{})
			go func() { stop(); close(stopped) }()
			if !c.ends {
				<-stopped
				if err := <-cut; !errors.Is(err, errStopping) {
					t.Errorf("the request ended with %v, want %v", err, errStopping)
				}
				return
			}
			for { // wait until no new connection is accepted
				late, err := new(net.Dialer).DialContext(t.Context(), "tcp", w.Addr().String())
				if err != nil {
					break
				}
				_ = late.Close()
			}
			close(end)
			if got, _ := io.ReadAll(conn); !strings.HasSuffix(string(got), "done") {
				t.Errorf("the request in progress got %q", got)
			}
			<-stopped
		})
	}
}
