package codec_test

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bourse-dev/bourse/internal/codec"
)

func TestWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	w := codec.NewWriter(rec)
	if w.Write(math.NaN()) == nil || w.Begun() {
		t.Fatal("a value that cannot be encoded began the reply")
	}
	for _, v := range []any{map[string]int{"a": 1}, "b\nc"} {
		if err := w.Write(v); err != nil || !w.Begun() || !rec.Flushed {
			t.Fatalf("write %v: got error %v, begun %t, flushed %t", v, err, w.Begun(), rec.Flushed)
		}
		rec.Flushed = false
	}
	w.Begin()
	if got, want := rec.Body.String(), "{\"a\":1}\n\"b\\nc\"\n"; got != want || rec.Header().Get("Content-Type") != codec.Type || rec.Flushed {
		t.Errorf("got %q of type %q, flushed again by Begin: %t", got, rec.Header().Get("Content-Type"), rec.Flushed)
	}
}

func TestBegin(t *testing.T) {
	rec := httptest.NewRecorder()
	w := codec.NewWriter(rec)
	w.Begin()
	if !rec.Flushed || rec.Code != http.StatusOK || rec.Body.Len() != 0 {
		t.Errorf("after Begin: got flushed %t, status %d and body %q, want a flushed status 200 without a body", rec.Flushed, rec.Code, rec.Body)
	}
	rec.Flushed, w.Buffered = false, true
	if err := w.Write(1); err != nil || rec.Flushed {
		t.Errorf("write of a buffered line: %v, flushed %v", err, rec.Flushed)
	}
}

// gone is the reply to a client that has disconnected.
type gone struct{ http.ResponseWriter }

var errGone = errors.New("gone")

func (gone) Write([]byte) (int, error) { return 0, errGone }

func TestACallerThatLeft(t *testing.T) {
	if err := codec.NewWriter(gone{httptest.NewRecorder()}).Write(1); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
}
