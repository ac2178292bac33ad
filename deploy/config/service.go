package config

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

const (
	portHTTP    = 80
	portHTTPS   = 443
	defaultPort = 8080
)

// served contains the locations in the configuration file at which a service and its checks are defined.
type served struct {
	path   string
	checks []string
}

// services returns a group's services and, for each of them, the paths at which the file defines the service and its
// checks.
func (c *Config) services(group string, image bourse.ImageKind) (out []workload.ServiceConfig, from []served) {
	port := defaultPort
	if image == bourse.HostImage {
		port = 0 // 0 means the port in $PORT, because machines on a host share its ports
	}
	if h := c.HTTPService; h != nil && c.isFor(h.Processes, group) {
		s := workload.ServiceConfig{
			Protocol: "tcp", InternalPort: valueOr(h.InternalPort, port), Autostop: h.AutoStop, Autostart: new(valueOr(h.AutoStart, true)),
			MinRunning: h.MinRunning, Concurrency: h.Concurrency,
			Ports: []workload.PortConfig{
				{Port: new(portHTTP), Handlers: []workload.Handler{workload.HandlerHTTP}, ForceHTTPS: h.ForceHTTPS, HTTP: h.HTTPOptions},
				{Port: new(portHTTPS), Handlers: []workload.Handler{workload.HandlerHTTP, workload.HandlerTLS}, HTTP: h.HTTPOptions, TLS: h.TLSOptions},
			},
		}
		at := served{path: "http_service"}
		for i := range h.Checks {
			s.Checks, at.checks = append(s.Checks, h.Checks[i].api()), append(at.checks, item("http_service.checks", i))
		}
		for i, check := range h.TCPChecks {
			s.Checks = append(s.Checks, check.Times.api("tcp"))
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

func (in *Service) api(port int) workload.ServiceConfig {
	s := workload.ServiceConfig{
		Protocol: in.Protocol, InternalPort: valueOr(in.InternalPort, port), Autostop: in.AutoStop, Autostart: new(valueOr(in.AutoStart, true)),
		MinRunning: in.MinRunning, Concurrency: in.Concurrency, Ports: in.Ports,
	}
	if s.Protocol == "" {
		s.Protocol = "tcp"
	}
	for _, check := range in.TCPChecks {
		s.Checks = append(s.Checks, check.Times.api("tcp"))
	}
	for i := range in.HTTPChecks {
		s.Checks = append(s.Checks, in.HTTPChecks[i].api())
	}
	return s
}

func (h *HTTPCheck) api() workload.CheckConfig {
	out := h.Times.api("http")
	h.Request.add(&out)
	return out
}

func (t Times) api(kind string) workload.CheckConfig {
	return workload.CheckConfig{Type: kind, Interval: workload.Duration(t.Interval), Timeout: workload.Duration(t.Timeout), Grace: workload.Duration(t.Grace)}
}

func (r *Request) add(out *workload.CheckConfig) {
	out.Method, out.Path, out.Protocol, out.TLSSkipVerify, out.TLSServerName = r.Method, r.Path, r.Protocol, r.TLSSkipVerify, r.TLSServerName
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		out.Headers = append(out.Headers, workload.Header{Name: name, Values: r.Headers[name]})
	}
}

// topChecks returns a group's checks that do not belong to a service.
func (c *Config) topChecks(group string) map[string]workload.CheckConfig {
	out := map[string]workload.CheckConfig{}
	for name := range c.Checks {
		check := c.Checks[name]
		if !c.isFor(check.Processes, group) {
			continue
		}
		api := check.Times.api(check.Type)
		api.Kind, api.Port = check.Kind, check.Port
		check.Request.add(&api)
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

// raw encodes a value as JSON.
func raw(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: all types passed to raw can be marshaled
	}
	return out
}
