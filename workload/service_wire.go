package workload

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// wireService is a service in a config's JSON.
type wireService struct {
	Protocol     string     `json:"protocol"`
	InternalPort int        `json:"internal_port"`
	Autostart    *bool      `json:"autostart"`
	Autostop     autostop   `json:"autostop"`
	MinRunning   *int       `json:"min_machines_running"`
	Ports        []wirePort `json:"ports"`
	Concurrency  *struct {
		Type string `json:"type"`
		Hard int    `json:"hard_limit"`
		Soft int    `json:"soft_limit"`
	} `json:"concurrency"`
}

// autostop also reads what older clients send: false and true.
type autostop string

// UnmarshalJSON implements json.Unmarshaler.
func (a *autostop) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null", "false":
		*a = autostop(AutostopOff)
		return nil
	case "true":
		*a = autostop(AutostopStop)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if *a = autostop(s); !slices.Contains([]Autostop{"", AutostopOff, AutostopStop, AutostopSuspend}, Autostop(s)) {
		return bourse.Errorf(bourse.CodeInvalid, "autostop %s: use off, stop or suspend", bourse.Quoted(s))
	}
	return nil
}

type wirePort struct {
	Port       *int      `json:"port"`
	First      *int      `json:"start_port"`
	Last       *int      `json:"end_port"`
	Handlers   []Handler `json:"handlers"`
	ForceHTTPS bool      `json:"force_https"`
	TLS        *struct {
		ALPN       []string `json:"alpn"`
		Versions   []string `json:"versions"`
		SelfSigned bool     `json:"default_self_signed"`
	} `json:"tls_options"`
	HTTP       *wireHTTP `json:"http_options"`
	ProxyProto *struct {
		Version string `json:"version"`
	} `json:"proxy_proto_options"`
}

type wireHTTP struct {
	Compress *bool `json:"compress"`
	Response *struct {
		Headers  map[string]json.RawMessage `json:"headers"`
		Pristine bool                       `json:"pristine"`
	} `json:"response"`
	H2Backend   *bool   `json:"h2_backend"`
	IdleTimeout *uint32 `json:"idle_timeout"`         // seconds
	HeadersRead *uint32 `json:"headers_read_timeout"` // seconds
	ReplayCache []struct {
		PathPrefix  string `json:"path_prefix"`
		TTLSeconds  int    `json:"ttl_seconds"`
		Type        string `json:"type"`
		Name        string `json:"name"`
		AllowBypass bool   `json:"allow_bypass"`
	} `json:"replay_cache"`
}

// port reads a port. The error's message begins with the path below it.
func (w *wirePort) port() (p Port, err error) {
	switch {
	case w.Port != nil:
		p.First, p.Last = *w.Port, *w.Port
	case w.First != nil && w.Last != nil:
		p.First, p.Last = *w.First, *w.Last
	default:
		return p, invalid(": name a port, or start_port and end_port")
	}
	if !validPort(p.First) || !validPort(p.Last) || p.First > p.Last {
		return p, invalid(": ports %d to %d: use 1 to 65535", p.First, p.Last)
	}
	for _, h := range w.Handlers {
		if !slices.Contains([]Handler{HandlerHTTP, HandlerTLS, HandlerPGTLS, HandlerProxyProto, HandlerEdgeHTTP}, h) {
			return p, invalid(".handlers: %s: use http, tls, pg_tls or proxy_proto", bourse.Quoted(string(h)))
		}
	}
	p.Handlers, p.ForceHTTPS = w.Handlers, w.ForceHTTPS
	if w.TLS != nil {
		p.TLS = TLSOptions{ALPN: w.TLS.ALPN, Versions: w.TLS.Versions, SelfSigned: w.TLS.SelfSigned}
		if err := p.tlsSupported(); err != nil {
			return p, err
		}
	}
	if w.ProxyProto != nil {
		if v := w.ProxyProto.Version; v != "" && v != "v1" && v != "v2" {
			return p, invalid(".proxy_proto_options.version %s: use v1 or v2", bourse.Quoted(v))
		}
		p.ProxyV2 = w.ProxyProto.Version == "v2"
	}
	if w.HTTP != nil {
		p.HTTP, err = w.HTTP.options()
	}
	return p, err
}

// tlsSupported reports CodeInvalid for options that no connection could be
// served with. The error's message begins with the path below the port.
func (p *Port) tlsSupported() error {
	for _, v := range p.TLS.Versions {
		if v != "TLSv1.2" && v != "TLSv1.3" {
			return invalid(".tls_options.versions: %s: use TLSv1.2 or TLSv1.3", bourse.Quoted(v))
		}
	}
	for _, protocol := range p.TLS.ALPN {
		switch {
		case protocol == "" || len(protocol) > maxALPN:
			return invalid(".tls_options.alpn: %s: the name of a protocol has 1 to %d bytes", bourse.Quoted(protocol), maxALPN)
		case p.Has(HandlerHTTP) && protocol != "h2" && protocol != "http/1.1":
			return invalid(".tls_options.alpn: %s: handler http supports h2 and http/1.1", bourse.Quoted(protocol))
		}
	}
	return nil
}

// maxALPN is the longest protocol name that TLS can carry (RFC 7301, section 3.1).
const maxALPN = 255

func (w *wireHTTP) options() (o HTTPOptions, err error) {
	o.Compress = w.Compress != nil && *w.Compress
	o.H2Backend = w.H2Backend != nil && *w.H2Backend
	o.IdleTimeout, o.HeadersRead = seconds(w.IdleTimeout), seconds(w.HeadersRead)
	if w.Response != nil {
		o.Pristine = w.Response.Pristine
		if o.Headers, err = edits(w.Response.Headers); err != nil {
			return o, err
		}
	}
	for i, c := range w.ReplayCache {
		if c.Type != "header" && c.Type != "cookie" || c.Name == "" {
			return o, invalid(".http_options.replay_cache[%d]: type is header or cookie, with its name", i)
		}
		o.ReplayCache = append(o.ReplayCache, ReplayCache{c.PathPrefix, time.Duration(c.TTLSeconds) * time.Second, c.Type, c.Name, c.AllowBypass})
	}
	return o, nil
}

func seconds(n *uint32) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}

// edits reads header edits: a value, a list of them, or false to remove the
// header; in order of name.
func edits(all map[string]json.RawMessage) (out []HeaderEdit, err error) {
	for name, raw := range all {
		e := HeaderEdit{Name: name}
		var one string
		switch {
		case string(raw) == "false":
		case json.Unmarshal(raw, &one) == nil:
			e.Values = []string{one}
		case json.Unmarshal(raw, &e.Values) != nil:
			return nil, invalid(".http_options.response.headers: %s is a value, a list of them, or false", bourse.Quoted(name))
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b HeaderEdit) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out, nil
}
