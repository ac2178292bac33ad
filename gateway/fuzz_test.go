package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// read decodes a body as a handler does.
func read(t *testing.T, body []byte, v any) bool {
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(string(body)))
	err := readBody(httptest.NewRecorder(), r, v)
	if err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("%q: %v, want invalid", body, err)
	}
	return err == nil
}

// FuzzSubmission checks that a submission is either invalid or becomes an order that a
// worker accepts.
func FuzzSubmission(f *testing.F) {
	for _, text := range []string{
		`{"name":"a","command":"true"}`, `{"command":["a","b"],"env":{"A":"b"},"cpu":2,"mem":64,"disk":1,"timeout":"3s"}`, `{"command":null}`, `[]`, `{"disk":1025,"command":"x"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var s submission
		if !read(t, body, &s) {
			return
		}
		o, err := s.order(bourse.DefaultApp(bourse.App{}), "gru", "mine")
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%q: %v, want invalid", body, err)
			}
			return
		}
		if err := o.Validate(); err != nil || o.Config.Image != bourse.ImagePull || len(o.Config.Init.Command()) == 0 {
			t.Errorf("%q became the order %+v: %v", body, o, err)
		}
	})
}

// FuzzRegistration checks that only sizes that a host can have are valid.
func FuzzRegistration(f *testing.F) {
	for _, text := range []string{`{"name":"a","cpu":1,"mem":2,"disk":3}`, `{"cpu":1e-9}`, `{"cpu":-1}`, `{"running":[]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var in registration
		if !read(t, body, &in) {
			return
		}
		if size, err := in.size(); err == nil && (size.CPU < 0 || size.CPU > bourse.MaxCPUs*1000) {
			t.Errorf("%q became %+v", body, size)
		}
	})
}

// FuzzReport checks that a report is either invalid or has a valid code and a bounded output.
func FuzzReport(f *testing.F) {
	f.Add("", []byte(`{"exit_code":0,"output":"x"}`))
	f.Add("", []byte(`{}`))
	f.Add("exit_code=3", []byte("raw"))
	f.Add("exit_code=x", []byte(""))
	f.Fuzz(func(t *testing.T, query string, body []byte) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(string(body)))
		r.URL.RawQuery = query
		if _, err := readReport(httptest.NewRecorder(), r); err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%q %q: %v, want invalid", query, body, err)
		}
	})
}
