package config

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

// apiService is a service in the API's JSON.
type apiService struct {
	Protocol     string       `json:"protocol"`
	InternalPort int64        `json:"internal_port"`
	Autostop     Autostop     `json:"autostop"`
	Autostart    bool         `json:"autostart"`
	MinRunning   *int64       `json:"min_machines_running,omitempty"`
	Ports        []Port       `json:"ports,omitempty"`
	Concurrency  *Concurrency `json:"concurrency,omitempty"`
	Checks       []apiCheck   `json:"checks,omitempty"`
}

// apiCheck is a check in the API's JSON.
type apiCheck struct {
	Type          string          `json:"type,omitempty"`
	Kind          string          `json:"kind,omitempty"`
	Port          *int64          `json:"port,omitempty"`
	Interval      bourse.Duration `json:"interval,omitempty"`
	Timeout       bourse.Duration `json:"timeout,omitempty"`
	Grace         bourse.Duration `json:"grace_period,omitempty"`
	Method        string          `json:"method,omitempty"`
	Path          string          `json:"path,omitempty"`
	Protocol      string          `json:"protocol,omitempty"`
	TLSSkipVerify *bool           `json:"tls_skip_verify,omitempty"`
	TLSServerName string          `json:"tls_server_name,omitempty"`
	Headers       []apiHeader     `json:"headers,omitempty"`
}

type apiHeader struct {
	Name   string `json:"name"`
	Values Words  `json:"values"`
}

const (
	portHTTP    = int64(80)
	portHTTPS   = int64(443)
	defaultPort = int64(8080)
)

// served is where a service and its checks are in a file.
type served struct {
	path   string
	checks []string
}

// services returns the services of a group, and where each is in the file.
func (c *Config) services(group string, image bourse.ImageKind) (out []apiService, from []served) {
	port := defaultPort
	if image == bourse.HostImage {
		port = 0 // what $PORT says: machines of one host share its ports
	}
	if h := c.HTTPService; h != nil && c.isFor(h.Processes, group) {
		outside, secure := portHTTP, portHTTPS
		s := apiService{
			Protocol: "tcp", InternalPort: valueOr(h.InternalPort, port), Autostop: h.AutoStop, Autostart: valueOr(h.AutoStart, true),
			MinRunning: h.MinRunning, Concurrency: h.Concurrency,
			Ports: []Port{
				{Port: &outside, Handlers: []string{"http"}, ForceHTTPS: h.ForceHTTPS, HTTP: h.HTTPOptions},
				{Port: &secure, Handlers: []string{"http", "tls"}, HTTP: h.HTTPOptions, TLS: h.TLSOptions},
			},
		}
		at := served{path: "http_service"}
		for i := range h.Checks {
			s.Checks, at.checks = append(s.Checks, h.Checks[i].api()), append(at.checks, item("http_service.checks", i))
		}
		for i, check := range h.TCPChecks {
			s.Checks = append(s.Checks, apiCheck{Type: "tcp", Interval: check.Interval, Timeout: check.Timeout, Grace: check.Grace})
			at.checks = append(at.checks, item("http_service.tcp_checks", i))
		}
		out, from = append(out, s), append(from, at)
	}
	for i := range c.Services {
		if in := &c.Services[i]; c.isFor(in.Processes, group) {
			at := served{path: item("services", i)}
			for j := range in.TCPChecks {
				at.checks = append(at.checks, item(at.path+".tcp_checks", j))
			}
			for j := range in.HTTPChecks {
				at.checks = append(at.checks, item(at.path+".http_checks", j))
			}
			out, from = append(out, in.api(port)), append(from, at)
		}
	}
	for i := range out {
		if out[i].Autostop == "" {
			out[i].Autostop = "off"
		}
	}
	return out, from
}

func (in *Service) api(port int64) apiService {
	s := apiService{
		Protocol: in.Protocol, InternalPort: valueOr(in.InternalPort, port), Autostop: in.AutoStop, Autostart: valueOr(in.AutoStart, true),
		MinRunning: in.MinRunning, Concurrency: in.Concurrency, Ports: in.Ports,
	}
	if s.Protocol == "" {
		s.Protocol = "tcp"
	}
	for _, check := range in.TCPChecks {
		s.Checks = append(s.Checks, apiCheck{Type: "tcp", Interval: check.Interval, Timeout: check.Timeout, Grace: check.Grace})
	}
	for i := range in.HTTPChecks {
		s.Checks = append(s.Checks, in.HTTPChecks[i].api())
	}
	return s
}

func (h *HTTPCheck) api() apiCheck {
	out := h.Request.api()
	out.Type, out.Interval, out.Timeout, out.Grace = "http", h.Interval, h.Timeout, h.Grace
	return out
}

func (r *Request) api() apiCheck {
	out := apiCheck{Method: r.Method, Path: r.Path, Protocol: r.Protocol, TLSSkipVerify: r.TLSSkipVerify, TLSServerName: r.TLSServerName}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		out.Headers = append(out.Headers, apiHeader{name, Words(r.Headers[name])})
	}
	return out
}

// topChecks returns the checks of a group that are of no service.
func (c *Config) topChecks(group string) map[string]apiCheck {
	out := map[string]apiCheck{}
	for name := range c.Checks {
		check := c.Checks[name]
		if !c.isFor(check.Processes, group) {
			continue
		}
		api := check.Request.api()
		api.Type, api.Kind, api.Port = check.Type, check.Kind, check.Port
		api.Interval, api.Timeout, api.Grace = check.Interval, check.Timeout, check.Grace
		out[name] = api
	}
	return out
}

func valueOr[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

// raw is a value's JSON.
func raw(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // of types above, which have JSON
	}
	return out
}
