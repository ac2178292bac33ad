package fabric_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/codec/codectest"
)

func TestReadBody(t *testing.T) {
	object := func(text string) io.Reader { return bytes.NewReader(codectest.Body(t, text)) }
	name := func(size int) io.Reader { // returns an order of the given size
		body := codectest.Body(t, `{"name":"`+strings.Repeat("x", size-len("\xa1\x64name\x7a1234"))+`"}`)
		if len(body) != size {
			t.Fatalf("%d bytes, want %d", len(body), size)
		}
		return bytes.NewReader(body)
	}
	tests := []struct {
		name string
		body io.Reader
		ok   bool
	}{
		{"an object", object(`{"name":"a"}`), true},
		{"an unknown field", object(`{"later":1}`), true},
		{"the maximum size", name(fabric.MaxBody), true},
		{"a byte above the maximum size", name(fabric.MaxBody + 1), false},
		{"100 MB", io.LimitReader(zeros{}, 100<<20), false},
		{"nothing", strings.NewReader(""), false},
		{"JSON", strings.NewReader(`{"name":"a"}`), false},
		{"half an object", strings.NewReader("\xa1\x64name"), false},
		{"two objects", strings.NewReader("\xa0\xa0"), false},
		{"the wrong kind", object(`{"name":7}`), false},
		{"a list", object(`[7]`), false},
		{"a list with a false length", strings.NewReader("\xa1\x67regions\x9b\x00\x00\x00\x00\x7f\xff\xff\xff"), false},
		{"without end", strings.NewReader("\xbf\xff"), false},
		{"deep nesting in an ignored field", strings.NewReader("\xa1\x61x" + strings.Repeat("\x81", 100_000) + "\x80"), false},
		{"an invalid value of a known field", object(`{"timeout":"soon"}`), false},
		{"a connection that breaks", io.MultiReader(object(`{}`), iotest.ErrReader(errors.New("reset"))), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var o bourse.Order
			err := fabric.ReadBody(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", tt.body), &o)
			if tt.ok && err != nil {
				t.Errorf("refused: %v", err)
			}
			if !tt.ok && (bourse.CodeOf(err) != bourse.CodeInvalid || len(bourse.MessageOf(err)) > 300) {
				t.Errorf("got %q (code %q), want a short text and code invalid", err, bourse.CodeOf(err))
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestWriteBodyFails checks that a value that cannot be encoded results in an error instead
// of a partial reply.
func TestWriteBodyFails(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fabric.WriteBody(w, bourse.Facts{Load: math.NaN()}) })
	_, err := facts(t, fabrictest.Serving(h))
	if bourse.CodeOf(err) != bourse.CodeInternal || err.Error() != "internal error" {
		t.Errorf("got %v", err)
	}
}

// FuzzReadBody decodes arbitrary request bodies.
func FuzzReadBody(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"id":"01J","app":{"name":"web"},"regions":[["gru"]],"config":{"image":"host","requirements":{"slots":1}},"timeout":1000000000}`,
		`{"config":{"guest":{"cpus":-1,"memory_mb":1e99}}}`, `[]`, "\x00", `{"timeout":9223372036854775808}`,
	} {
		f.Add(string(codectest.Body(f, s)))
	}
	f.Fuzz(func(t *testing.T, body string) {
		var claim bourse.Claim
		var o bourse.Order
		for _, v := range []any{&claim, &o, new(fabric.MachineAction), new(fabric.MetadataRequest), new(fabric.LeaseRequest), new(bourse.App)} {
			err := fabric.ReadBody(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)), v)
			if c := bourse.CodeOf(err); c != "" && c != bourse.CodeInvalid {
				t.Errorf("got code %q: %v", c, err)
			}
		}
		_ = o.Validate() // must not panic, whatever was decoded
	})
}

// FuzzReply decodes arbitrary replies.
func FuzzReply(f *testing.F) {
	for _, s := range []string{`{}`, `{"fill":{}}`, `{"refusal":{"wanted":-1}}`, `{"code":"invalid","message":"x"}`, `{"worker":"w1","takes":[{"amount":-1}]}`, "{"} {
		f.Add(200, string(codectest.Body(f, s)))
		f.Add(400, s)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 {
			return
		}
		h := fabrictest.Serving(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		fill, refusal, err := fabric.Trader{Fabric: h}.Claim(t.Context(), w1, &bourse.Claim{})
		if (err == nil) != ((fill == nil) != (refusal == nil)) {
			t.Errorf("claim: got %v, %v, %v", fill, refusal, err)
		}
		h.Ask(t.Context(), []bourse.Member{w1}, &bourse.Order{}, func(q bourse.Quote) {
			if q.Worker != w1.ID || q.Takes.Validate() != nil {
				t.Errorf("quote: got %+v", q)
			}
		})
	})
}
