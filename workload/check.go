package workload

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Check is a health check in a machine's configuration, with defaults filled in.
type Check struct {
	Name           string    // unique in the machine; for a service's check, it begins with "servicecheck-"
	Type           CheckType // tcp or http
	Kind           CheckKind // determines which of the machine's services a failure affects
	Port           int       // the machine's port, 1 to 65535; 0 means $PORT
	ConfiguredPort int       // the port in the config, if Port was replaced by the machine's $PORT
	// Index of the check's service in the config, starting at 1; 0 if the check does not belong to a service.
	Service  int
	Interval time.Duration // time from the end of a probe to the next one, 1 s to 1 h
	Timeout  time.Duration // time limit of a probe, 1 s to 60 s
	Grace    time.Duration // time after a start during which failures do not count, up to 1 h

	// For type http.
	Method        string
	Path          string
	TLS           bool
	TLSSkipVerify bool   // accept any certificate
	TLSServerName string // server name for TLS; default "localhost"
	Headers       []Header
}

// AffectsRouting reports whether a failure of the check blocks requests for the given service. service is the service's
// index in the config, starting at 1.
func (c *Check) AffectsRouting(service int) bool {
	return c.Kind == Readiness || c.Kind == ServiceCheck && c.Service == service
}

// CheckType is the protocol of a check.
type CheckType string

// The check types.
const (
	CheckTCP  CheckType = "tcp"  // passes if the port accepts a connection
	CheckHTTP CheckType = "http" // passes if a request is answered with status 2xx
)

// CheckKind determines what a check's failure affects.
type CheckKind string

// The check kinds.
const (
	Informational CheckKind = "informational" // a failure does not affect requests; clients can read the status
	Readiness     CheckKind = "readiness"     // a failure blocks requests for all of the machine's services
	// A failure blocks requests for the check's service. All checks that belong to services are of this kind.
	ServiceCheck CheckKind = "service"
)

// Limits and defaults of checks.
const (
	MaxChecks      = 32  // maximum number of checks per machine
	MaxCheckOutput = 512 // maximum length of a status's output in bytes

	defaultInterval = 15 * time.Second
	defaultTimeout  = 2 * time.Second
	defaultGrace    = time.Second
	minTime         = time.Second
	maxTimeout      = time.Minute
	maxInterval     = time.Hour
)

// Checks returns the checks in a config: first the top-level checks, sorted by name, then those
// of the services. If a check is invalid, Checks returns none. [Review] reports the error.
func Checks(c *bourse.Config) []Check {
	list, _ := readChecks(c)
	return list
}

// readChecks returns the checks in a config. If a check is invalid, it returns CodeInvalid with
// the path of the invalid value.
func readChecks(c *bourse.Config) ([]Check, error) {
	var out []Check
	top, err := checksIn(&c.StoredConfig)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(top)) {
		check, err := top[name].check(0)
		if err == nil && (name == "" || len(name) > 128 || strings.ContainsFunc(name, isControl) || strings.HasPrefix(name, "servicecheck-")) {
			err = invalid("use a name of 1 to 128 characters that does not begin with servicecheck-")
		}
		if err != nil {
			return nil, invalid("invalid config.checks.%s: %s", bourse.Quoted(name), bourse.MessageOf(err))
		}
		check.Name = name
		out = append(out, check)
	}
	services, err := servicesIn(&c.StoredConfig)
	if err != nil {
		return nil, err
	}
	n := 0
	for i, s := range services {
		for j := range s.Checks {
			check, err := s.Checks[j].check(s.InternalPort)
			if err != nil {
				return nil, invalid("invalid config.services[%d].checks[%d]: %s", i, j, bourse.MessageOf(err))
			}
			check.Kind, check.Service = ServiceCheck, i+1
			check.Name = fmt.Sprintf("servicecheck-%02d-%s-%d", n, check.Type, check.Port)
			out = append(out, check)
			n++
		}
	}
	if len(out) > MaxChecks {
		return nil, invalid("invalid config: %d checks, at most %d", len(out), MaxChecks)
	}
	return out, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// check fills in a check's defaults. port is the default port. An out-of-range duration is replaced by the nearest
// valid one, as clients of the Machines API expect.
func (c CheckConfig) check(port int) (Check, error) {
	out := Check{
		Type: CheckType(strings.ToLower(c.Type)), Kind: c.Kind, Port: c.Port,
		Interval: clampDuration(c.Interval, defaultInterval, minTime, maxInterval),
		Timeout:  clampDuration(c.Timeout, defaultTimeout, minTime, maxTimeout),
		Grace:    clampDuration(c.Grace, defaultGrace, 0, maxInterval),
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
		return out, invalid("port %d: use 1 to 65535, or none for the machine's $PORT", out.Port)
	case out.Kind != Informational && out.Kind != Readiness:
		return out, invalid("kind %s: use informational or readiness", bourse.Quoted(string(out.Kind)))
	case out.Type == CheckTCP:
		return out, nil
	case out.Type != CheckHTTP:
		return out, invalid("type %s: use tcp or http", bourse.Quoted(string(out.Type)))
	}
	return out, c.request(&out)
}

// request fills in the fields of out that describe an HTTP check's request.
func (c CheckConfig) request(out *Check) error {
	out.Method, out.Path, out.Headers = strings.ToUpper(c.Method), c.Path, c.Headers
	out.TLSSkipVerify, out.TLSServerName = valueOf(c.TLSSkipVerify), c.TLSServerName
	if out.Method == "" {
		out.Method = http.MethodGet
	}
	if out.Path == "" {
		out.Path = "/"
	}
	if out.TLS = c.Protocol == "https"; !out.TLS && c.Protocol != "" && c.Protocol != "http" {
		return invalid("protocol %s: use http or https", bourse.Quoted(c.Protocol))
	}
	target := out.Path
	if !strings.HasPrefix(target, "/") || len(target) > 4096 || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return invalid("path %s: use one that begins with /", bourse.Quoted(target))
	}
	if _, err := http.NewRequest(out.Method, "http://machine"+target, http.NoBody); err != nil { //nolint:noctx // never sent
		return invalid("invalid method %s or path %s", bourse.Quoted(out.Method), bourse.Quoted(target))
	}
	size := 0
	for _, h := range out.Headers {
		size += len(h.Name)
		if h.Name == "" || strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
			return invalid("invalid header name %s", bourse.Quoted(h.Name))
		}
		for _, v := range h.Values {
			if size += len(v); textproto.TrimString(v) != v || strings.ContainsFunc(v, isControl) {
				return invalid("header %s has an invalid value", bourse.Quoted(h.Name))
			}
		}
	}
	if size > 8192 {
		return invalid("headers of %d bytes, at most 8192", size)
	}
	return nil
}

func clampDuration(d Duration, fallback, least, most time.Duration) time.Duration {
	if d == 0 {
		return fallback
	}
	return min(max(time.Duration(d), least), most)
}
