package fabric

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse/internal/codec"
)

func TestServeMessage(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	like := &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{"Bourse-To": {"w1"}}}
	failure, err := codec.Marshal(Failure{Code: "invalid", Message: `invalid URI "x"`})
	if err != nil {
		t.Fatal(err)
	}
	type reply struct {
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
		}, reply{202, "POST /worker/x?a=1 192.0.2.1:1 body"}},
		"nothing":   {"/", func(http.ResponseWriter, *http.Request) {}, reply{200, ""}},
		"no path":   {"x", func(http.ResponseWriter, *http.Request) {}, reply{400, string(failure)}},
		"an abort":  {"/", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, reply{}},
		"a bug":     {"/", func(http.ResponseWriter, *http.Request) { panic("a bug") }, reply{}},
		"too large": {"/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, MaxAnswer+1)) }, reply{}},
	} {
		a := ServeMessage(context.Background(), like, &Message{Method: http.MethodPost, URI: c.uri, Body: []byte("body")}, c.answer, log)
		if got := (reply{a.Status, string(a.Body)}); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
