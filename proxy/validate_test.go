package proxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy"
)

// field is a header field, or a pseudo-header field, as it is sent.
type field struct{ name, value string }

// h2Fields returns the fields of a GET request. The given fields replace those with the same name,
// or are added.
func h2Fields(changed ...field) []field {
	fields := []field{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "web.example"}}
	for _, c := range changed {
		if i := slices.IndexFunc(fields, func(f field) bool { return f.name == c.name }); i >= 0 {
			fields[i] = c
		} else {
			fields = append(fields, c)
		}
	}
	return fields
}

// h2Send sends a request over HTTP/2 exactly as given, because a real client would not send an
// invalid request. It returns the status of the reply, or "" if the stream or the connection was
// reset.
func h2Send(t *testing.T, addr string, fields []field) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(limit))
	var block strings.Builder
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = encoder.WriteField(hpack.HeaderField{Name: f.name, Value: f.value})
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(c, http2.ClientPreface)
	if err = errors.Join(err, framer.WriteSettings(), framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true,
	})); err != nil {
		return ""
	}
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return ""
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}

// TestInvalidRequestsReachNoMachine checks that a request that cannot be sent to any
// machine is refused before a machine is chosen or started.
func TestInvalidRequestsReachNoMachine(t *testing.T) {
	for name, h2Backend := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, handle(echo))
			w.target.Port.HTTP.H2Backend = h2Backend
			w.start(proxy.Listener{})
			for _, bad := range []field{
				{":method", "GE T"},
				{":method", "GET\r\nX: y"},
				{":method", "G(T"},
				{":method", "GÉT"},
				{":path", "/?a b"},
				{":path", "/?a HTTP/1.1"},
				{":path", "*"},
				{":authority", "web.example\x7f"},
				{":authority", "[web.example"},
				{":authority", "web.example]"},
				{":authority", "wéb.example"},
				{"trailer", "a b"},
				{"trailer", "x(y)"},
			} {
				if got := h2Send(t, w.addr, h2Fields(bad)); got != "" && got[0] != '4' {
					t.Errorf("%s %q: status %s, want 4xx or a reset", bad.name, bad.value, got)
				}
			}
			_, in := w.send("GET / HTTP/1.1\r\nHost: web.example\r\nConnection: Upgrade\r\nUpgrade: w\xe9b\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 400 {
				t.Errorf("an upgrade with a non-ASCII protocol: status %d, want 400", resp.StatusCode)
			}
			w.settled()
			if len(w.uses) > 0 || len(w.failed) > 0 {
				t.Errorf("machines used: %v, failed: %v", w.uses, w.failed)
			}
		})
	}
}

// TestUpgradeToAnH2Backend checks that an upgrade request is sent as an ordinary request, because HTTP/2 does not
// support upgrades.
func TestUpgradeToAnH2Backend(t *testing.T) {
	w := newWorld(t, handle(func(_ http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Upgrade") != "" {
			t.Errorf("the machine got %s with %v", r.Proto, r.Header)
		}
	}))
	w.target.Port.HTTP.H2Backend = true
	w.start(proxy.Listener{})
	r := w.request("GET", "/", nil)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	if resp, text := w.do(r); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	w.settled()
	if len(w.failed) > 0 {
		t.Error("the machine was marked as failed")
	}
}

// FuzzNoRequestMarksAMachine checks that every request is either refused before a machine is used, or answered by a
// machine. No request may cause a machine to be marked as failed.
func FuzzNoRequestMarksAMachine(f *testing.F) {
	for _, h2Backend := range []bool{false, true} {
		f.Add(h2Backend, "GET", "/", "web.example", "x-a", "1")
		f.Add(h2Backend, "GE T", "/", "web.example", "x-a", "1")
		f.Add(h2Backend, "PRI", "//a/../%00?%zz;&=", "WEB.example.:80", "te", "trailers")
		f.Add(h2Backend, "HEAD", "/?a b", "[web.example]", "trailer", "a b")
		f.Add(h2Backend, "M-SEARCH", "/é?é#x", "web.example", "cookie", "é=\xff")
		f.Add(h2Backend, "OPTIONS", "*", "web.example", "content-length", "0")
		f.Add(h2Backend, "DELETE", "/", "web.example", "expect", "100-continue")
	}
	f.Fuzz(func(t *testing.T, h2Backend bool, method, path, authority, name, value string) {
		if strings.HasPrefix(name, ":") {
			return
		}
		w := newWorld(t, handle(echo))
		w.target.Port.HTTP.H2Backend = h2Backend
		w.start(proxy.Listener{})
		status := h2Send(t, w.addr, h2Fields(field{":method", method}, field{":path", path}, field{":authority", authority}, field{name, value}))
		w.settled()
		if len(w.failed) > 0 || strings.HasPrefix(status, "50") {
			t.Errorf("status %s, failed %v", status, w.failed)
		}
	})
}

// TestWhoseFault checks that a machine is marked as failed only because of its own failures, and not because of
// clients' failures or the proxy's limits.
func TestWhoseFault(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: web.example\r\n"
	breaksOff := handle(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = r.Body.Read(make([]byte, 1))
		panic(http.ErrAbortHandler)
	})
	for name, c := range map[string]struct {
		machine http.Handler
		use     error
		waiting int
		raw     string
		marked  bool
	}{
		"a body breaks off":                        {machine: handle(echo), raw: post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nX\r\n"},
		"a machine leaves an unfinished body":      {machine: breaksOff, raw: post + "Content-Length: 10\r\n\r\nhello"},
		"a machine breaks off":                     {machine: breaksOff, raw: post + "Content-Length: 5\r\n\r\nhello", marked: true},
		"a machine cannot be made ready":           {machine: handle(echo), use: bourse.Errorf(bourse.CodeFailedPrecondition, "no"), raw: post + "\r\n", marked: true},
		"too many requests are waiting":            {machine: handle(echo), waiting: -1, raw: post + "\r\n"},
		"a body breaks off in the middle of reply": {machine: earlyReply(), raw: post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nX\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.machine)
			if c.use != nil {
				w.use = func(context.Context, bourse.MachineID) error { return c.use }
			}
			w.config.Limits.MaxAttempts, w.config.Limits.MaxWaiting, w.config.Limits.Stall = 1, c.waiting, time.Second/2
			w.start(proxy.Listener{})
			conn, in := w.send(c.raw)
			if resp, err := http.ReadResponse(in, nil); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			_ = conn.Close()
			w.settled()
			if got := len(w.failed) > 0; got != c.marked {
				t.Errorf("marked as failed: %t, want %t", got, c.marked)
			}
		})
	}
}

// earlyReply returns a handler that begins its reply before it has read the body.
func earlyReply() http.Handler {
	return handle(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
}
