package edge

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// stream runs an edge with a listener for port 5432 of app db.
func stream(t *testing.T, c Config, r *routes) Stream {
	t.Helper()
	s := Stream{Listener: listenHere(t), App: "db", Port: 5432}
	c.Streams, c.Routes = []Stream{s}, r
	start(t, c)
	return s
}

func portWith(handlers ...workload.Handler) workload.Port {
	return workload.Port{First: 5432, Last: 5432, Handlers: handlers}
}

// say sends data, closes the sending side, and returns all received data.
func say(t *testing.T, c interface {
	io.ReadWriter
	CloseWrite() error
}, text string,
) string {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("read after %q: %v", got, err)
	}
	return string(got)
}

// TestStream checks that a machine notices the end of the client's data and can reply after that.
func TestStream(t *testing.T) {
	t.Parallel()
	b := &inOrder{}
	s := stream(t, Config{Balance: b}, streamOf(portWith(), machine(t)))
	long := strings.Repeat("0123456789abcdef", 1<<16)
	if got := say(t, dial(t, s), long); got != long+"!" {
		t.Errorf("%d bytes came back, want %d", len(got), len(long)+1)
	}
	for end := time.Now().Add(waitLimit); b.inUse() > 0; {
		if time.Now().After(end) {
			t.Fatal("a stream that has ended still counts as in use")
		}
		runtime.Gosched()
	}
}

// TestStreamGoesElsewhere checks that another machine is tried if nothing was sent to the first one.
func TestStreamGoesElsewhere(t *testing.T) {
	t.Parallel()
	gone := listenHere(t)
	_ = gone.Close()
	b := &inOrder{}
	s := stream(t, Config{Balance: b}, streamOf(portWith(), "none", gone.Addr().String(), machine(t)))
	if got := say(t, dial(t, s), "hello"); got != "hello!" {
		t.Errorf("got %q", got)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bad["none"] == nil || b.bad[bourse.MachineID(gone.Addr().String())] == nil {
		t.Errorf("the balancer was not notified of the failed machines: %v", b.bad)
	}
}

// TestStreamWithoutMachineIsClosed checks that the client's connection is closed if there is no machine.
func TestStreamWithoutMachineIsClosed(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*routes{
		"no app":       {},
		"no machine":   streamOf(portWith(), "none"),
		"another port": streamOf(workload.Port{First: 80, Last: 80}, "none"),
		"HTTP":         streamOf(portWith(workload.HandlerHTTP), machine(t)),
	} {
		s := stream(t, Config{}, r)
		if got := exchange(t, s, "hello"); got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// TestStreamWithTLS checks that the proxy terminates TLS with the port's options.
func TestStreamWithTLS(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	ca.write(t, dir, "db", "db.example.com")
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	port := portWith(workload.HandlerTLS)
	port.TLS = workload.TLSOptions{Versions: []string{"TLSv1.3"}, ALPN: []string{"other"}}
	s := stream(t, Config{Certificates: &Certificates{Files: files}}, streamOf(port, machine(t)))
	c := tls.Client(dial(t, s), &tls.Config{RootCAs: ca.pool, ServerName: "db.example.com", NextProtos: []string{"other"}})
	if got := say(t, c, "hello"); got != "hello!" || c.ConnectionState().NegotiatedProtocol != "other" {
		t.Errorf("got %q over %q", got, c.ConnectionState().NegotiatedProtocol)
	}
	old := tls.Client(dial(t, s), &tls.Config{RootCAs: ca.pool, ServerName: "db.example.com", MaxVersion: tls.VersionTLS12})
	if err := old.HandshakeContext(t.Context()); err == nil {
		t.Error("TLS 1.2 was accepted although the service requires 1.3")
	}
	if got := exchange(t, s, "no handshake\r\n\r\n"); strings.Contains(got, "!") {
		t.Errorf("without TLS: %q", got)
	}
}

// TestPostgres checks TLS with PostgreSQL clients. Some clients request TLS as their protocol specifies, others begin
// with the TLS handshake, and a client without TLS receives an error.
func TestPostgres(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	ca.write(t, dir, "db", "db.example.com")
	files, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := streamOf(portWith(workload.HandlerPGTLS), machine(t))
	s := stream(t, Config{Certificates: &Certificates{Files: files}, Limits: Limits{Handshake: waitLimit}}, r)
	ask := func(code uint32) []byte { return binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, code) }
	over := func(c net.Conn, alpn ...string) string {
		return say(t, tls.Client(c, &tls.Config{RootCAs: ca.pool, ServerName: "db.example.com", NextProtos: alpn}), "query")
	}
	answer := func(c net.Conn, request []byte) byte {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		var one [1]byte
		if _, err := io.ReadFull(c, one[:]); err != nil {
			t.Fatal(err)
		}
		return one[0]
	}
	c := dial(t, s)
	if got := answer(c, ask(pgSSL)); got != 'S' {
		t.Errorf("asked for TLS: %q, want S", got)
	}
	if got := over(c); got != "query!" {
		t.Errorf("over TLS: %q", got)
	}
	c = dial(t, s)
	if gss, ssl := answer(c, ask(pgGSS)), answer(c, ask(pgSSL)); gss != 'N' || ssl != 'S' || over(c) != "query!" {
		t.Errorf("asked for GSS, then TLS: %q, %q, want N, S", gss, ssl)
	}
	if got := over(dial(t, s), "postgresql"); got != "query!" {
		t.Errorf("started with TLS: %q", got)
	}
	c = dial(t, s)
	startup := append([]byte{0, 0, 0, 20, 0, 3, 0, 0}, "user\x00anna\x00\x00"...)
	if _, err := c.Write(append(startup, make([]byte, 50<<10)...)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || !bytes.HasPrefix(got, []byte{'E'}) || !bytes.Contains(got, []byte("sslmode=require")) {
		t.Errorf("without TLS: %q, %v, want a PostgreSQL error and EOF", got, err)
	}
	for name, text := range map[string]string{"repeated GSS requests": string(ask(pgGSS)) + string(ask(pgGSS)) + string(ask(pgGSS)), "cancel": string(ask(pgCancel)), "nothing": ""} {
		c := dial(t, s)
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		_ = c.CloseWrite()
		if got, _ := io.ReadAll(c); strings.Contains(string(got), "S") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestPostgresWithoutMachine checks that the client receives an error, over TLS, if there is no
// machine.
func TestPostgresWithoutMachine(t *testing.T) {
	t.Parallel()
	s := stream(t, Config{Certificates: &Certificates{SelfSigned: true}}, streamOf(portWith(workload.HandlerPGTLS), "none"))
	c := tls.Client(dial(t, s), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"postgresql"}})
	if got := say(t, c, "query"); !strings.HasPrefix(got, "E") || !strings.Contains(got, "no machine can be reached") {
		t.Errorf("got %q", got)
	}
}

// TestStreamSendsProxyHeader checks that a machine receives the client's address in a PROXY header,
// even if the client is behind a load balancer.
func TestStreamSendsProxyHeader(t *testing.T) {
	t.Parallel()
	for _, v2 := range []bool{false, true} {
		port := portWith(workload.HandlerProxyProto)
		port.ProxyV2 = v2
		s := stream(t, Config{}, streamOf(port, machine(t)))
		c := dial(t, s)
		got, from := say(t, c, "hello"), c.LocalAddr().(*net.TCPAddr)
		want := "PROXY TCP4 127.0.0.1 127.0.0.1 "
		if v2 {
			want = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01" + string(binary.BigEndian.AppendUint16(nil, uint16(from.Port)))
		}
		if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "hello!") {
			t.Errorf("v2 %v: the machine got %q, want %q first", v2, got, want)
		}
	}
}

// TestIdleStream checks that a stream that does not transfer any bytes is closed after the idle timeout.
func TestIdleStream(t *testing.T) {
	t.Parallel()
	s := stream(t, Config{Limits: Limits{Idle: 20 * time.Millisecond}}, streamOf(portWith(), machine(t)))
	c := dial(t, s)
	if _, err := io.ReadAll(c); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Errorf("the idle stream was not closed: %v", err)
	}
}

// observedListener is a listener that signals when it is closed.
type observedListener struct {
	net.Listener
	closed chan struct{}
	once   sync.Once
}

func (c *observedListener) Close() error {
	defer c.once.Do(func() { close(c.closed) })
	return c.Listener.Close()
}

// TestStreamsAreDrained checks that streams in progress get time to end when the proxy stops.
func TestStreamsAreDrained(t *testing.T) {
	t.Parallel()
	for _, drain := range []time.Duration{time.Minute, time.Millisecond} {
		l := &observedListener{Listener: listenHere(t), closed: make(chan struct{})}
		s := Stream{Listener: l, App: "db", Port: 5432}
		at, reached := listenHere(t), make(chan net.Conn, 1)
		go func() {
			if c, err := at.Accept(); err == nil {
				reached <- c
			}
		}()
		stop := start(t, Config{Streams: []Stream{s}, Routes: streamOf(portWith(), at.Addr().String()), Limits: Limits{Drain: drain}})
		c := dial(t, s)
		m := <-reached
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		if drain == time.Minute {
			<-l.closed // no new streams are accepted, but the one in progress continues
			_, _ = io.WriteString(m, "done")
			_ = m.Close()
			if got, _ := io.ReadAll(c); string(got) != "done" {
				t.Errorf("the client got %q, want the last data that the machine sent", got)
			}
			_ = c.Close()
		}
		<-stopped
		_ = m.Close()
	}
}
