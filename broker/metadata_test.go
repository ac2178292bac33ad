package broker_test

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestMetadata(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID) + "/metadata"
	for _, step := range []struct {
		method, path, body string
		status             int
		reply              string
	}{
		{"GET", "", "", 200, `{}`},
		{"GET", "/a", "", 404, ""},
		{"POST", "/a", `{"value":"1"}`, 204, ""},
		{"GET", "/a", "", 200, `{"value":"1"}`},
		{"PUT", "", `{"metadata":{"b":"2","c":"3"}}`, 204, ""}, // the key a stays unchanged
		{"GET", "", "", 200, `{"a":"1","b":"2","c":"3"}`},
		{"PATCH", "", `{"metadata":{"b":null,"c":"","d":"4"},"updated_at":"2026-01-01T00:00:00Z"}`, 204, ""},
		{"GET", "", "", 200, `{"a":"1","d":"4"}`},
		{"PATCH", "", `{"metadata":{"e":"5"},"machine_version":"01J00000000000000000000000"}`, 412, ""},
		{"PATCH", "", `{"metadata":{"e":"5"},"machine_version":"` + string(m.Instance) + `"}`, 204, ""},
		{"DELETE", "/a", "", 204, ""},
		{"DELETE", "/a", "", 204, ""},
		{"POST", "/fly_x%2Fy", `{"value":"odd"}`, 204, ""},
		{"GET", "/fly_x%2Fy", "", 200, `{"value":"odd"}`},
		{"GET", "", "", 200, `{"d":"4","e":"5","fly_x/y":"odd"}`},
	} {
		rec := s.call(t, step.method, path+step.path, step.body)
		if got := strings.TrimSpace(rec.Body.String()); rec.Code != step.status || (step.reply != "" && got != step.reply) {
			t.Errorf("%s %s %s: %d %s; want %d %s", step.method, step.path, step.body, rec.Code, got, step.status, step.reply)
		}
	}
	if got := s.workers["w1"].machines[m.ID].Instance; got != m.Instance {
		t.Errorf("metadata created a new version")
	}
}
