package workload_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

func config(checks, services string) *bourse.Config {
	var c bourse.Config
	if checks != "" {
		c.Checks = json.RawMessage(checks)
	}
	if services != "" {
		c.Services = json.RawMessage(services)
	}
	return &c
}

func TestChecks(t *testing.T) {
	t.Parallel()
	got := workload.Checks(config(`{
		"web": {"type": "http", "port": 8080, "path": "/up?x=1", "method": "head", "protocol": "https", "tls_skip_verify": true,
			"tls_server_name": "example.com", "kind": "readiness", "interval": "1m", "timeout": 3000000000, "grace_period": "5s",
			"headers": [{"name": "Host", "values": ["example.com"]}]},
		"a": {"port": 22},
		"own": {"type": "tcp"}
	}`, `[
		{"internal_port": 80, "checks": [{"type": "tcp", "interval": "1ms", "timeout": "1h"}, {"path": "/"}]},
		{"internal_port": 81},
		{"internal_port": 82, "checks": [{"type": "HTTP", "port": 83}]}
	]`))
	plain := workload.Check{Type: workload.CheckTCP, Kind: workload.ServiceCheck, Interval: 15 * time.Second, Timeout: 2 * time.Second, Grace: time.Second}
	want := []workload.Check{
		with(plain, func(c *workload.Check) { c.Name, c.Kind, c.Port = "a", workload.Informational, 22 }),
		with(plain, func(c *workload.Check) { c.Name, c.Kind = "own", workload.Informational }),
		{
			Name: "web", Type: workload.CheckHTTP, Kind: workload.Readiness, Port: 8080, Interval: time.Minute, Timeout: 3 * time.Second, Grace: 5 * time.Second,
			Method: "HEAD", Path: "/up?x=1", TLS: true, TLSSkipVerify: true, TLSServerName: "example.com",
			Headers: []workload.Header{{Name: "Host", Values: []string{"example.com"}}},
		},
		with(plain, func(c *workload.Check) {
			c.Name, c.Port, c.Service, c.Interval, c.Timeout = "servicecheck-00-tcp-80", 80, 1, time.Second, time.Minute
		}),
		with(plain, func(c *workload.Check) {
			c.Name, c.Type, c.Port, c.Service, c.Method, c.Path = "servicecheck-01-http-80", workload.CheckHTTP, 80, 1, "GET", "/"
		}),
		with(plain, func(c *workload.Check) {
			c.Name, c.Type, c.Port, c.Service, c.Method, c.Path = "servicecheck-02-http-83", workload.CheckHTTP, 83, 3, "GET", "/"
		}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func with(c workload.Check, change func(*workload.Check)) workload.Check {
	change(&c)
	return c
}

// TestDecides checks which services a check affects: a readiness check affects all services, a service's check
// affects only that service, and other checks do not affect any.
func TestDecides(t *testing.T) {
	t.Parallel()
	list := workload.Checks(config(`{"a":{"port":1},"b":{"port":1,"kind":"readiness"}}`, `[{"internal_port":80},{"internal_port":81,"checks":[{}]}]`))
	got := map[string][2]bool{}
	for _, c := range list {
		got[c.Name] = [2]bool{c.AffectsRouting(1), c.AffectsRouting(2)}
	}
	want := map[string][2]bool{"a": {}, "b": {true, true}, "servicecheck-00-tcp-81": {false, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReviewRefusesChecks(t *testing.T) {
	t.Parallel()
	many := "{" + strings.TrimSuffix(strings.Repeat(`"NAME":{"port":1},`, workload.MaxChecks+1), ",") + "}"
	for i := range workload.MaxChecks + 1 {
		many = strings.Replace(many, "NAME", strings.Repeat("x", i+1), 1)
	}
	for name, c := range map[string]struct{ checks, services, want string }{
		"a large port":    {`{"a":{"port":65536}}`, "", `invalid config.checks."a": port 65536: use 1 to 65535`},
		"a type":          {`{"a":{"port":1,"type":"script"}}`, "", `invalid config.checks."a": type "script": use tcp or http`},
		"a kind":          {`{"a":{"port":1,"kind":"liveness"}}`, "", `invalid config.checks."a": kind "liveness": use informational or readiness`},
		"a protocol":      {`{"a":{"port":1,"protocol":"gopher"}}`, "", `invalid config.checks."a": protocol "gopher": use http or https`},
		"a path":          {`{"a":{"port":1,"path":"up"}}`, "", `invalid config.checks."a": path "up": use one that begins with /`},
		"a split path":    {`{"a":{"port":1,"path":"/ HTTP/1.1\r\nX: y"}}`, "", `invalid config.checks."a": path "/ HTTP/1.1\r\nX: y": use one that begins with /`},
		"a method":        {`{"a":{"port":1,"method":"G ET"}}`, "", `invalid config.checks."a": invalid method "G ET" or path "/"`},
		"a header":        {`{"a":{"port":1,"path":"/","headers":[{"name":"a:b","values":[]}]}}`, "", `invalid config.checks."a": invalid header name "a:b"`},
		"a split header":  {`{"a":{"port":1,"path":"/","headers":[{"name":"a","values":["b\r\nc: d"]}]}}`, "", `invalid config.checks."a": header "a" has an invalid value`},
		"a name":          {`{"servicecheck-00-tcp-1":{"port":1}}`, "", `invalid config.checks."servicecheck-00-tcp-1": use a name of 1 to 128 characters that does not begin with servicecheck-`},
		"a service's":     {"", `[{"internal_port":80},{"checks":[{"port":-3}]}]`, `invalid config.services[1].checks[0]: port -3: use 1 to 65535`},
		"too many":        {many, "", `invalid config: 33 checks, at most 32`},
		"another shape":   {`[]`, "", `invalid config.checks: a JSON array does not fit`},
		"a duration":      {`{"a":{"port":1,"interval":"soon"}}`, "", `invalid config.checks.a.interval: a JSON value "soon" does not fit`},
		"large headers":   {`{"a":{"port":1,"path":"/","headers":[{"name":"a","values":["` + strings.Repeat("x", 9000) + `"]}]}}`, "", `invalid config.checks."a": headers of 9001 bytes, at most 8192`},
		"a negative port": {`{"a":{"port":-1}}`, "", `invalid config.checks."a": port -1: use 1 to 65535`},
	} {
		_, err := workload.Review(config(c.checks, c.services))
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.HasPrefix(bourse.MessageOf(err), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func FuzzChecks(f *testing.F) {
	f.Add(`{"a":{"type":"http","port":80,"path":"/","headers":[{"name":"a","values":["b"]}]}}`, `[{"internal_port":1,"checks":[{}]}]`)
	f.Fuzz(func(t *testing.T, checks, services string) {
		c := config(checks, services)
		if _, err := workload.Review(c); err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%v", err)
		}
		list := workload.Checks(c)
		names := map[string]bool{}
		for _, c := range list {
			if names[c.Name] || c.Port < 0 || c.Port > 65535 || c.Interval < time.Second || c.Timeout < time.Second || c.Timeout > time.Minute || c.Grace < 0 {
				t.Errorf("%+v", c)
			}
			names[c.Name] = true
		}
	})
}

func TestCheckStatuses(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := bourse.Machine{State: bourse.StateStarted, UpdatedAt: at, Config: *config(`{"a":{"port":1},"b":{"port":2}}`, "")}
	m.Config.Image = "x"
	m.Boot.Number = 2
	known := bourse.CheckStatus{Name: "b", Status: bourse.CheckCritical, Output: "no", UpdatedAt: at.Add(time.Second)}
	for _, c := range []struct {
		name   string
		change func(*bourse.Machine)
		want   []bourse.CheckStatus
	}{
		{"no result", func(*bourse.Machine) {}, waiting(at, "waiting for the first result", "a", "b")},
		{
			"of this start", func(m *bourse.Machine) {
				m.Checks = &bourse.CheckResults{Boot: 2, Results: []bourse.CheckStatus{known}}
			},
			append(waiting(at, "waiting for the first result", "a"), known),
		},
		{
			"of an earlier start", func(m *bourse.Machine) {
				m.Checks = &bourse.CheckResults{Boot: 1, Results: []bourse.CheckStatus{known}}
			},
			waiting(at, "waiting for the first result", "a", "b"),
		},
		{"stopped", func(m *bourse.Machine) { m.State = bourse.StateStopped }, waiting(at, "the machine is stopped", "a", "b")},
		{
			"a poller's", func(m *bourse.Machine) { m.Config.Image = bourse.ImagePull },
			waiting(at, "a poller runs the machine: its ports cannot be reached", "a", "b"),
		},
		{"none", func(m *bourse.Machine) { m.Config.Checks = nil }, nil},
	} {
		now := m
		c.change(&now)
		if diff := cmp.Diff(c.want, workload.CheckStatuses(&now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func waiting(at time.Time, why string, names ...string) []bourse.CheckStatus {
	var out []bourse.CheckStatus
	for _, n := range names {
		out = append(out, bourse.CheckStatus{Name: n, Status: bourse.CheckWarning, Output: why, UpdatedAt: at})
	}
	return out
}
