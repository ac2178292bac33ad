package broker_test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestPanicFailsOneRequest checks that a panic fails only one request and the process keeps running. The reply contains
// a request ID that is also in the log; the cause appears only in the log.
func TestPanicFailsOneRequest(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	s.workers["w1"].set(func(call string) error {
		if call == "machine/stop" {
			panic("the secret of the handler")
		}
		return nil
	})
	rec := s.call(t, "POST", path+"/stop", "")
	got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
	if rec.Code != 500 || got.Error != "internal error" || got.Code != bourse.CodeInternal || got.RequestID != rec.Header().Get("fly-request-id") {
		t.Errorf("status %d, %+v", rec.Code, got)
	}
	if log := s.log.String(); !strings.Contains(log, "the secret of the handler") || !strings.Contains(log, got.RequestID) {
		t.Errorf("the log lacks the cause or the request:\n%s", log)
	}
	if rec := s.call(t, "GET", path, ""); rec.Code != 200 {
		t.Errorf("the next request: status %d", rec.Code)
	}
}

// TestRequestLog checks that a request that changes something adds one line to the log, and that a
// read adds none.
func TestRequestLog(t *testing.T) {
	s := start(t)
	s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`)
	s.call(t, "GET", createPath, "")
	s.call(t, "POST", createPath, `{`)
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines:\n%s", len(lines), s.log)
	}
	first, second := decodeBody[map[string]any](t, []byte(lines[0])), decodeBody[map[string]any](t, []byte(lines[1]))
	if first["msg"] != "request" || first["endpoint"] != "POST /v1/apps/{app}/machines" || first["app"] != "default" || first["status"] != 200.0 || first["who"] != "local" {
		t.Errorf("the first line is %v", first)
	}
	if second["status"] != 400.0 || second["code"] != "invalid" || second["request"] == first["request"] {
		t.Errorf("the second line is %v", second)
	}
}

// TestPanicInOneOfManyCalls checks that, if the call to one of several workers panics, that worker counts as
// unresponsive.
func TestPanicInOneOfManyCalls(t *testing.T) {
	s := startBlind(t)
	s.machine(t, "w1", "a", bourse.StateStarted)
	s.workers["w2"].set(func(string) error { panic("bad answer") })
	if _, header := s.list(t, ""); header.Get("Bourse-Unreachable") != "w2" {
		t.Errorf("unreachable: %q", header.Get("Bourse-Unreachable"))
	}
}
