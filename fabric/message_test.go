package fabric

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse/internal/codec"
)

func TestMessage(t *testing.T) {
	m := Message{Method: "PATCH", URI: "/worker/volumes/a%2Fb?x=1", Body: []byte("{}")}
	b := AppendMessage(nil, &m)
	got, err := ParseMessage(b)
	if err != nil || got.Method != m.Method || got.URI != m.URI || !bytes.Equal(got.Body, m.Body) {
		t.Errorf("got %+v, %v", got, err)
	}
	for n := range len(b) - len(m.Body) {
		if _, err := ParseMessage(b[:n]); err == nil {
			t.Errorf("the first %d bytes are taken", n)
		}
	}
	if extra := len(b) - len(m.Method) - len(m.URI) - len(m.Body); extra > MessageRoom {
		t.Errorf("it needs %d bytes beside its texts, not %d", extra, MessageRoom)
	}
}

// FuzzMessage shows that any bytes read as a message are written so that the
// same is read again.
func FuzzMessage(f *testing.F) {
	quote := QuoteMessage([]byte("{}"))
	f.Add(AppendMessage(nil, &quote))
	f.Add([]byte{})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{1, 'a', 255, 255, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, err := ParseMessage(AppendMessage(nil, &m))
		if err != nil || again.Method != m.Method || again.URI != m.URI || !bytes.Equal(again.Body, m.Body) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

func TestServeMessage(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	like := &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{"Bourse-To": {"w1"}}}
	failure, err := codec.Marshal(Failure{Code: "invalid", Message: `a call of "x"`})
	if err != nil {
		t.Fatal(err)
	}
	type reply struct {
		whole  bool
		status int
		body   string
	}
	for name, c := range map[string]struct {
		uri    string
		answer http.HandlerFunc
		want   reply
	}{
		"an echo": {"/worker/x?a=1", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.RemoteAddr+" ")
			_, _ = io.Copy(w, r.Body)
			if len(r.Header) > 0 {
				_, _ = io.WriteString(w, " with a header")
			}
		}, reply{true, 202, "POST /worker/x?a=1 192.0.2.1:1 body"}},
		"nothing":   {"/", func(http.ResponseWriter, *http.Request) {}, reply{true, 200, ""}},
		"no path":   {"x", func(http.ResponseWriter, *http.Request) {}, reply{true, 400, string(failure)}},
		"an abort":  {"/", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, reply{false, 200, ""}},
		"a bug":     {"/", func(http.ResponseWriter, *http.Request) { panic("a bug") }, reply{false, 200, ""}},
		"too large": {"/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, MaxAnswer+1)) }, reply{false, 200, ""}},
	} {
		h := Hold(7)
		whole := ServeMessage(context.Background(), like, &Message{Method: http.MethodPost, URI: c.uri, Body: []byte("body")}, c.answer, h, log)
		if got := (reply{whole, h.Status(), string(h.Bytes()[7:])}); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
		h.Release()
	}
}
