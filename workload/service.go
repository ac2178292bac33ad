package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Service is one entry of a config's services, with the defaults filled in.
type Service struct {
	Protocol     Protocol
	InternalPort int    // of the machine, 1 to 65535; 0: what its $PORT says
	Ports        []Port // that it is reached at from outside; none: by nobody
	Autostart    bool   // a request starts the machine; default true, as flyctl, which leaves it out, has it
	Autostop     Autostop
	MinRunning   int // machines of the app that autostop leaves running in its primary region
	Concurrency  Concurrency
}

// Protocol is what a service speaks below what its handlers do.
type Protocol string

// The protocols.
const (
	ProtocolTCP Protocol = "tcp"
	ProtocolUDP Protocol = "udp" // kept; no proxy serves it
)

// Autostop says what happens to a machine that nobody uses.
type Autostop string

// The values of Autostop. If the services of a machine differ, the value that is first
// here applies.
const (
	AutostopOff     Autostop = "off"
	AutostopStop    Autostop = "stop"
	AutostopSuspend Autostop = "suspend" // or stop, where it cannot be suspended
)

// UnmarshalJSON also reads what older clients send: false and true.
func (a *Autostop) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null", "false", `"off"`:
		*a = AutostopOff
	case "true", `"stop"`:
		*a = AutostopStop
	case `"suspend"`:
		*a = AutostopSuspend
	default:
		return unfit(b)
	}
	return nil
}

// Handler is one thing that a proxy does with a connection. A port lists its handlers in
// the order in which they are applied.
type Handler string

// The handlers.
const (
	HandlerHTTP       Handler = "http"
	HandlerTLS        Handler = "tls"
	HandlerPGTLS      Handler = "pg_tls"      // TLS as PostgreSQL's clients ask for it
	HandlerProxyProto Handler = "proxy_proto" // the machine is told the client's address in a header of the PROXY protocol
	HandlerEdgeHTTP   Handler = "edge_http"   // kept; serves as http
)

// Port is a port, or a range of them, of a service as it is seen from outside.
type Port struct {
	First, Last int // 1 to 65535
	Handlers    []Handler
	ForceHTTPS  bool
	TLS         TLSOptions
	HTTP        HTTPOptions
	ProxyV2     bool // of the header that handler proxy_proto writes; otherwise version 1
}

// Has reports whether a handler is among the port's.
func (p *Port) Has(h Handler) bool {
	for _, x := range p.Handlers {
		if x == h || x == HandlerEdgeHTTP && h == HandlerHTTP {
			return true
		}
	}
	return false
}

// HTTPOptions is a [HTTPConfig] as a proxy applies it.
type HTTPOptions struct {
	Compress    bool
	H2Backend   bool          // the machine speaks HTTP/2 without TLS
	Pristine    bool          // replies have no headers of the proxy's
	Headers     []HeaderEdit  // in order of name
	IdleTimeout time.Duration // of a connection without bytes; 0: the proxy's
	HeadersRead time.Duration // for a request's headers; 0: the proxy's
	ReplayCache []ReplayCache
}

// HeaderEdit sets a header of replies to its values, or removes it for none.
type HeaderEdit struct {
	Name   string
	Values []string
}

const defaultSoft = 20

// maxALPN is the longest protocol name that TLS can carry (RFC 7301, section 3.1).
const maxALPN = 255

// Services returns the services of a config in order. It returns none if one of them
// is invalid, which [Review] reports.
func Services(c *bourse.Config) []Service {
	list, _ := readServices(c)
	return list
}

// readServices returns the services of a config. It returns CodeInvalid, with the path
// of the value, if a service is invalid.
func readServices(c *bourse.Config) ([]Service, error) {
	list, err := servicesIn(&c.Kept)
	if err != nil {
		return nil, err
	}
	out := make([]Service, len(list))
	for i := range list {
		if out[i], err = list[i].service(fmt.Sprintf("invalid config.services[%d]", i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// AutostopOf returns what becomes of a machine with these services when nobody uses
// it: the least of what they ask for. Without services it is AutostopOff.
func AutostopOf(list []Service) Autostop {
	rank := map[Autostop]int{AutostopOff: 0, AutostopStop: 1, AutostopSuspend: 2}
	least := AutostopOff
	for i, s := range list {
		if i == 0 || rank[s.Autostop] < rank[least] {
			least = s.Autostop
		}
	}
	return least
}

func invalid(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeInvalid, format, args...)
}

// valueOf returns what p points to, the zero value for nil.
func valueOf[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

func validPort(n int) bool { return n > 0 && n < 65536 }

// service fills in the defaults. The error's message begins with path.
func (w *ServiceConfig) service(path string) (Service, error) {
	s := Service{
		Protocol: Protocol(strings.ToLower(w.Protocol)), InternalPort: w.InternalPort,
		Autostart: w.Autostart == nil || *w.Autostart, Autostop: w.Autostop, MinRunning: valueOf(w.MinRunning),
		Concurrency: valueOf(w.Concurrency),
	}
	if s.Protocol == "" {
		s.Protocol = ProtocolTCP
	}
	if s.Autostop == "" {
		s.Autostop = AutostopOff
	}
	if s.Concurrency.Soft == 0 {
		s.Concurrency.Soft = defaultSoft
		if hard := s.Concurrency.Hard; hard > 0 {
			s.Concurrency.Soft = min(defaultSoft, hard)
		}
	}
	switch kind := s.Concurrency.Type; {
	case s.Protocol != ProtocolTCP && s.Protocol != ProtocolUDP:
		return s, invalid("%s.protocol %s: use tcp or udp", path, bourse.Quoted(w.Protocol))
	case s.InternalPort != 0 && !validPort(s.InternalPort):
		return s, invalid("%s.internal_port %d: use 1 to 65535, or none for the machine's $PORT", path, s.InternalPort)
	case s.MinRunning < 0:
		return s, invalid("%s.min_machines_running %d: use 0 or more", path, s.MinRunning)
	case kind != "" && kind != "requests" && kind != "connections":
		return s, invalid("%s.concurrency.type %s: use connections or requests", path, bourse.Quoted(kind))
	case s.Concurrency.Soft < 0 || s.Concurrency.Hard < 0:
		return s, invalid("%s.concurrency: limits are 0 or more", path)
	}
	for i := range w.Ports {
		p, err := w.Ports[i].port(fmt.Sprintf("%s.ports[%d]", path, i))
		if err != nil {
			return s, err
		}
		s.Ports = append(s.Ports, p)
	}
	return s, nil
}

// port reads a port. The error's message begins with path.
func (w *PortConfig) port(path string) (p Port, err error) {
	switch {
	case w.Port != nil:
		p.First, p.Last = *w.Port, *w.Port
	case w.First != nil && w.Last != nil:
		p.First, p.Last = *w.First, *w.Last
	default:
		return p, invalid("%s: name a port, or start_port and end_port", path)
	}
	if !validPort(p.First) || !validPort(p.Last) || p.First > p.Last {
		return p, invalid("%s: ports %d to %d: use 1 to 65535", path, p.First, p.Last)
	}
	for _, h := range w.Handlers {
		if !slices.Contains([]Handler{HandlerHTTP, HandlerTLS, HandlerPGTLS, HandlerProxyProto, HandlerEdgeHTTP}, h) {
			return p, invalid("%s.handlers: %s: use http, tls, pg_tls or proxy_proto", path, bourse.Quoted(string(h)))
		}
	}
	p.Handlers, p.ForceHTTPS = w.Handlers, w.ForceHTTPS
	if w.TLS != nil {
		p.TLS = *w.TLS
		if err := p.tlsSupported(path + ".tls_options"); err != nil {
			return p, err
		}
	}
	if w.ProxyProto != nil {
		if v := w.ProxyProto.Version; v != "" && v != "v1" && v != "v2" {
			return p, invalid("%s.proxy_proto_options.version %s: use v1 or v2", path, bourse.Quoted(v))
		}
		p.ProxyV2 = w.ProxyProto.Version == "v2"
	}
	if w.HTTP != nil {
		p.HTTP, err = w.HTTP.options(path + ".http_options")
	}
	return p, err
}

// tlsSupported reports CodeInvalid for options that no connection could be
// served with. The error's message begins with path.
func (p *Port) tlsSupported(path string) error {
	for _, v := range p.TLS.Versions {
		if v != "TLSv1.2" && v != "TLSv1.3" {
			return invalid("%s.versions: %s: use TLSv1.2 or TLSv1.3", path, bourse.Quoted(v))
		}
	}
	for _, protocol := range p.TLS.ALPN {
		switch {
		case protocol == "" || len(protocol) > maxALPN:
			return invalid("%s.alpn: %s: the name of a protocol has 1 to %d bytes", path, bourse.Quoted(protocol), maxALPN)
		case p.Has(HandlerHTTP) && protocol != "h2" && protocol != "http/1.1":
			return invalid("%s.alpn: %s: handler http supports h2 and http/1.1", path, bourse.Quoted(protocol))
		}
	}
	return nil
}

// options reads the options of handler http. The error's message begins with path.
func (w *HTTPConfig) options(path string) (HTTPOptions, error) {
	o := HTTPOptions{
		Compress: valueOf(w.Compress), H2Backend: valueOf(w.H2Backend), ReplayCache: w.ReplayCache,
		IdleTimeout: time.Duration(valueOf(w.IdleTimeout)) * time.Second, HeadersRead: time.Duration(valueOf(w.HeadersRead)) * time.Second,
	}
	for i, c := range w.ReplayCache {
		if c.Type != "header" && c.Type != "cookie" || c.Name == "" {
			return o, invalid("%s.replay_cache[%d]: type is header or cookie, with its name", path, i)
		}
	}
	if w.Response != nil {
		o.Pristine = valueOf(w.Response.Pristine)
		for _, name := range slices.Sorted(maps.Keys(w.Response.Headers)) {
			o.Headers = append(o.Headers, HeaderEdit{name, w.Response.Headers[name]})
		}
	}
	return o, nil
}
