package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Check is a health check of a machine, as its config asks for it, with the
// defaults filled in.
type Check struct {
	Name     string        // unique in the machine; those of services begin with "servicecheck-"
	Type     CheckType     // tcp or http
	Kind     CheckKind     // whether it decides if requests reach the machine
	Port     int           // of the machine, 1 to 65535; 0: what its $PORT says
	Named    int           // the port that the config names, where a probe asks its $PORT instead
	Service  int           // place of its service among the config's, from 1; 0: it is of none
	Interval time.Duration // from the end of a probe to the next, 1 s to 1 h
	Timeout  time.Duration // of a probe, 1 s to 60 s
	Grace    time.Duration // after a start, in which a failure does not count; up to 1 h

	// Of type http.
	Method        string
	Path          string
	TLS           bool
	TLSSkipVerify bool   // accept any certificate
	TLSServerName string // default "localhost"
	Headers       []Header
}

// Decides reports whether requests of a service, by its place among the config's
// from 1, reach the machine only while the check does not fail.
func (c *Check) Decides(service int) bool {
	return c.Kind == Readiness || c.Kind == ServiceCheck && c.Service == service
}

// CheckType is how a check asks.
type CheckType string

// The types of checks.
const (
	CheckTCP  CheckType = "tcp"  // the port accepts a connection
	CheckHTTP CheckType = "http" // a request is answered with 2xx
)

// CheckKind is what a check decides.
type CheckKind string

// The kinds of checks.
const (
	Informational CheckKind = "informational" // nothing: clients read it
	Readiness     CheckKind = "readiness"     // whether requests of any service reach the machine
	ServiceCheck  CheckKind = "service"       // whether requests of its service do; set by being in one
)

// Header is a header of a check's request.
type Header struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// Bounds and defaults of checks.
const (
	MaxChecks      = 32  // of a machine
	MaxCheckOutput = 512 // bytes of a status

	defaultInterval = 15 * time.Second
	defaultTimeout  = 2 * time.Second
	defaultGrace    = time.Second
	minTime         = time.Second
	maxTimeout      = time.Minute
	maxInterval     = time.Hour
)

// ChecksOf returns the checks that a config asks for, at the top level in
// order of name, then those of its services. Errors: invalid, with the path of
// what cannot be checked.
func ChecksOf(c *bourse.Config) ([]Check, error) {
	var out []Check
	var top map[string]wireCheck
	if err := decode(c.Checks, &top); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid config.checks: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(top)) {
		check, err := top[name].check(0)
		if err == nil && (name == "" || len(name) > 128 || strings.ContainsFunc(name, isControl) || strings.HasPrefix(name, "servicecheck-")) {
			err = bourse.Errorf(bourse.CodeInvalid, "use a name of 1 to 128 characters that does not begin with servicecheck-")
		}
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid config.checks.%s: %s", bourse.Quoted(name), bourse.MessageOf(err))
		}
		check.Name = name
		out = append(out, check)
	}
	var services []struct {
		InternalPort int         `json:"internal_port"`
		Checks       []wireCheck `json:"checks"`
	}
	if err := decode(c.Services, &services); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid config.services: %w", err)
	}
	n := 0
	for i, s := range services {
		for j, raw := range s.Checks {
			check, err := raw.check(s.InternalPort)
			if err != nil {
				return nil, bourse.Errorf(bourse.CodeInvalid, "invalid config.services[%d].checks[%d]: %s", i, j, bourse.MessageOf(err))
			}
			check.Kind, check.Service = ServiceCheck, i+1
			check.Name = fmt.Sprintf("servicecheck-%02d-%s-%d", n, check.Type, check.Port)
			out = append(out, check)
			n++
		}
	}
	if len(out) > MaxChecks {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid config: %d checks, at most %d", len(out), MaxChecks)
	}
	return out, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func decode(raw json.RawMessage, v any) error {
	if len(raw) == 0 {
		return nil
	}
	return json.Unmarshal(raw, v)
}

// wireCheck is a check in a config's JSON.
type wireCheck struct {
	Type          string          `json:"type"`
	Kind          CheckKind       `json:"kind"`
	Port          int             `json:"port"`
	Interval      bourse.Duration `json:"interval"`
	Timeout       bourse.Duration `json:"timeout"`
	GracePeriod   bourse.Duration `json:"grace_period"`
	Method        string          `json:"method"`
	Path          string          `json:"path"`
	Protocol      string          `json:"protocol"`
	TLSSkipVerify bool            `json:"tls_skip_verify"`
	TLSServerName string          `json:"tls_server_name"`
	Headers       []Header        `json:"headers"`
}

// check fills in the defaults. Times out of their ranges become the nearest
// that is in it, as clients of the Machines API expect.
func (c wireCheck) check(port int) (Check, error) {
	out := Check{
		Type: CheckType(strings.ToLower(c.Type)), Kind: c.Kind, Port: c.Port,
		Interval: within(c.Interval, defaultInterval, minTime, maxInterval),
		Timeout:  within(c.Timeout, defaultTimeout, minTime, maxTimeout),
		Grace:    within(c.GracePeriod, defaultGrace, 0, maxInterval),
	}
	if out.Port == 0 {
		out.Port = port
	}
	if out.Kind == "" {
		out.Kind = Informational
	}
	if out.Type == "" {
		out.Type = CheckTCP
		if c.Path != "" || c.Method != "" || c.Protocol != "" {
			out.Type = CheckHTTP
		}
	}
	switch {
	case out.Port < 0 || out.Port > 65535:
		return out, bourse.Errorf(bourse.CodeInvalid, "port %d: use 1 to 65535, or none for the machine's $PORT", out.Port)
	case out.Kind != Informational && out.Kind != Readiness:
		return out, bourse.Errorf(bourse.CodeInvalid, "kind %s: use informational or readiness", bourse.Quoted(string(out.Kind)))
	case out.Type == CheckTCP:
		return out, nil
	case out.Type != CheckHTTP:
		return out, bourse.Errorf(bourse.CodeInvalid, "type %s: use tcp or http", bourse.Quoted(string(out.Type)))
	}
	return out, c.request(&out)
}

// request reads what a check of type http asks.
func (c wireCheck) request(out *Check) error {
	out.Method, out.Path, out.Headers = strings.ToUpper(c.Method), c.Path, c.Headers
	out.TLSSkipVerify, out.TLSServerName = c.TLSSkipVerify, c.TLSServerName
	if out.Method == "" {
		out.Method = http.MethodGet
	}
	if out.Path == "" {
		out.Path = "/"
	}
	if out.TLS = c.Protocol == "https"; !out.TLS && c.Protocol != "" && c.Protocol != "http" {
		return bourse.Errorf(bourse.CodeInvalid, "protocol %s: use http or https", bourse.Quoted(c.Protocol))
	}
	target := out.Path
	if !strings.HasPrefix(target, "/") || len(target) > 4096 || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return bourse.Errorf(bourse.CodeInvalid, "path %s: use one that begins with /", bourse.Quoted(target))
	}
	if _, err := http.NewRequest(out.Method, "http://machine"+target, http.NoBody); err != nil { //nolint:noctx // never sent
		return bourse.Errorf(bourse.CodeInvalid, "method %s or path %s cannot be asked for", bourse.Quoted(out.Method), bourse.Quoted(target))
	}
	size := 0
	for _, h := range out.Headers {
		size += len(h.Name)
		if h.Name == "" || strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
			return bourse.Errorf(bourse.CodeInvalid, "header %s is no header's name", bourse.Quoted(h.Name))
		}
		for _, v := range h.Values {
			if size += len(v); textproto.TrimString(v) != v || strings.ContainsFunc(v, isControl) {
				return bourse.Errorf(bourse.CodeInvalid, "header %s cannot have this value", bourse.Quoted(h.Name))
			}
		}
	}
	if size > 8192 {
		return bourse.Errorf(bourse.CodeInvalid, "headers of %d bytes, at most 8192", size)
	}
	return nil
}

func within(d bourse.Duration, fallback, least, most time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return min(max(time.Duration(d), least), most)
}
