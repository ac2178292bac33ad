package workload_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// to returns a Dial that connects to the listener, whatever the port.
func to(l net.Listener) workload.Dial {
	return func(ctx context.Context, _ uint16) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}
}

func one(t *testing.T, text string) workload.Check {
	t.Helper()
	return workload.Checks(config(`{"it":`+text+`}`, ""))[0]
}

func TestProbeHTTP(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/asked":
			fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.Header["X-A"])
		case "/moved":
			http.Redirect(w, r, "/asked", http.StatusFound)
		case "/long":
			_, _ = io.WriteString(w, strings.Repeat("é\x1b[31m", 1000))
		case "/headers":
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		case "/hangs":
			<-r.Context().Done()
		default:
			http.Error(w, "not\nwell", http.StatusInternalServerError)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	for _, c := range []struct {
		check  string
		server *httptest.Server
		passed bool
		output string
	}{
		{`"path":"/asked","headers":[{"name":"host","values":["example.com"]},{"name":"x-a","values":["1","2"]}]`, plain, true, "GET /asked: 200 OK: GET example.com [1 2]"},
		{`"path":"/asked","method":"POST"`, plain, true, "POST /asked: 200 OK: POST localhost:80 []"},
		{`"path":"/moved"`, plain, false, "GET /moved: 302 Found: <a href="},
		{`"path":"/"`, plain, false, "GET /: 500 Internal Server Error: not well"},
		{`"path":"/long"`, plain, true, "GET /long: 200 OK: é[31mé[31m"},
		{`"path":"/headers"`, plain, false, "net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded"},
		{`"path":"/hangs"`, plain, false, "no answer within 1s"},
		{`"path":"/asked","protocol":"https"`, secure, false, "tls: failed to verify certificate"},
		{`"path":"/asked","protocol":"https","tls_skip_verify":true`, secure, true, "GET /asked: 200 OK"},
		{`"path":"/asked","protocol":"https"`, plain, false, "tls: first record does not look like a TLS handshake"},
	} {
		timeout := `"timeout":"1m"` // long enough for a busy host
		if strings.Contains(c.check, "/hangs") {
			timeout = `"timeout":"1s"`
		}
		k := one(t, `{"type":"http","port":80,`+timeout+`,`+c.check+`}`)
		passed, output := k.Probe(t.Context(), to(c.server.Listener))
		if passed != c.passed || !strings.HasPrefix(output, c.output) || len(output) > workload.MaxCheckOutput || !utf8.ValidString(output) {
			t.Errorf("%s: %t %q, want %t %q", c.check, passed, output, c.passed, c.output)
		}
	}
}

func TestProbeTCP(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := one(t, `{"port":80}`)
	if passed, output := k.Probe(t.Context(), to(l)); !passed || output != "connected to port 80" {
		t.Errorf("%t %q", passed, output)
	}
	l.Close()
	if passed, output := k.Probe(t.Context(), to(l)); passed || output != "port 80: dial: connect: connection refused" {
		t.Errorf("%t %q: want the reason, without the host's address", passed, output)
	}
	k.ConfiguredPort = 4000
	if passed, output := k.Probe(t.Context(), to(l)); passed || output != "port 80, the machine's $PORT, because port 4000 was not available on its host: dial: connect: connection refused" {
		t.Errorf("%t %q: want the probed port and the reason", passed, output)
	}
	k.ConfiguredPort = 0
	none := one(t, "{}")
	if passed, output := none.Probe(t.Context(), to(l)); passed || output != "the machine has no $PORT: the check needs a port" {
		t.Errorf("%t %q", passed, output)
	}
	refused := func(context.Context, uint16) (net.Conn, error) {
		return nil, bourse.Errorf(bourse.CodeForbidden, "port 80 is not the machine's")
	}
	if passed, output := k.Probe(t.Context(), refused); passed || output != "port 80 is not the machine's" {
		t.Errorf("%t %q", passed, output)
	}
}

// TestProbeEnds checks that a probe ends at its timeout if the program accepts the connection but
// sends nothing, even during a TLS handshake.
func TestProbeEnds(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, text := range []string{`{"type":"http","port":1,"timeout":"1s"}`, `{"type":"http","protocol":"https","port":1,"timeout":"1s"}`} {
		k := one(t, text)
		begin := time.Now()
		passed, output := k.Probe(t.Context(), to(l))
		if took := time.Since(begin); passed || output != "no answer within 1s" || took > 10*time.Second {
			t.Errorf("%s: %t %q after %s", text, passed, output, took)
		}
	}
}
