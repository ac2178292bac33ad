package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Service is an item of a config's services, with defaults filled in.
type Service struct {
	Protocol     Protocol
	InternalPort int    // the machine's port, 1 to 65535; 0 means $PORT
	Ports        []Port // public ports; if there are none, proxies do not serve the service
	Autostart    bool   // whether a request starts the machine; default true, because flyctl omits this member
	Autostop     Autostop
	MinRunning   int // number of machines in the app's primary region that autostop leaves running
	Concurrency  Concurrency
}

// Protocol is the transport protocol of a service.
type Protocol string

// The transport protocols.
const (
	ProtocolTCP Protocol = "tcp"
	ProtocolUDP Protocol = "udp" // stored, but no proxy serves it
)

// Autostop determines what happens to an idle machine.
type Autostop string

// The values of Autostop. If a machine's services have different values, the one listed first here applies.
const (
	AutostopOff     Autostop = "off"
	AutostopStop    Autostop = "stop"
	AutostopSuspend Autostop = "suspend" // suspend the machine, or stop it if it cannot be suspended
)

// UnmarshalJSON also accepts the values false and true, which older clients send.
func (a *Autostop) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null", "false", `"off"`:
		*a = AutostopOff
	case "true", `"stop"`:
		*a = AutostopStop
	case `"suspend"`:
		*a = AutostopSuspend
	default:
		return wrongType(b)
	}
	return nil
}

// Handler is one of the steps by which a proxy processes a connection. A port's handlers are applied in the order in
// which the port lists them.
type Handler string

// The handlers.
const (
	HandlerHTTP       Handler = "http"
	HandlerTLS        Handler = "tls"
	HandlerPGTLS      Handler = "pg_tls"      // TLS negotiated by PostgreSQL clients
	HandlerProxyProto Handler = "proxy_proto" // passes the client's address to the machine in a PROXY protocol header
	HandlerEdgeHTTP   Handler = "edge_http"   // served like http
)

// Port is a service's public port, or a range of public ports.
type Port struct {
	First, Last int // first and last port, 1 to 65535
	Handlers    []Handler
	ForceHTTPS  bool
	TLS         TLSOptions
	HTTP        HTTPOptions
	ProxyV2     bool // whether the PROXY protocol header has version 2 instead of version 1
}

// Has reports whether the port has the given handler. The handler edge_http counts as http.
func (p *Port) Has(h Handler) bool {
	for _, x := range p.Handlers {
		if x == h || x == HandlerEdgeHTTP && h == HandlerHTTP {
			return true
		}
	}
	return false
}

// HTTPOptions contains the options of handler http that a proxy applies; see [HTTPConfig].
type HTTPOptions struct {
	Compress    bool
	H2Backend   bool          // whether the machine expects HTTP/2 without TLS
	Pristine    bool          // whether the proxy must not add its own headers to replies
	Headers     []HeaderEdit  // sorted by name
	IdleTimeout time.Duration // time after which an idle connection is closed; 0 means the proxy's default
	HeadersRead time.Duration // time limit for a request's headers; 0 means the proxy's default
	ReplayCache []ReplayCache
}

// HeaderEdit sets a reply header to Values, or removes it if Values is empty.
type HeaderEdit struct {
	Name   string
	Values []string
}

const defaultSoft = 20

// maxALPN is the maximum length of a protocol name in TLS (RFC 7301, section 3.1).
const maxALPN = 255

// Services returns the services in a config, in order. If a service is invalid, Services returns
// none. [Review] reports the error.
func Services(c *bourse.Config) []Service {
	list, _ := readServices(c)
	return list
}

// readServices returns the services in a config. If a service is invalid, it returns CodeInvalid
// with the path of the invalid value.
func readServices(c *bourse.Config) ([]Service, error) {
	list, err := servicesIn(&c.StoredConfig)
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

// AutostopOf returns the Autostop setting for a machine with these services. If the services have different settings,
// the one listed first among the values of Autostop applies. Without services, AutostopOf returns AutostopOff.
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

// valueOf returns *p, or the zero value if p is nil.
func valueOf[T any](p *T) T {
	if p == nil {
		return *new(T)
	}
	return *p
}

func validPort(n int) bool { return n > 0 && n < 65536 }

// service fills in a service's defaults. Error messages begin with path.
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
		return s, invalid("%s.concurrency: use limits of 0 or more", path)
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

// port reads a port. Error messages begin with path.
func (w *PortConfig) port(path string) (p Port, err error) {
	switch {
	case w.Port != nil:
		p.First, p.Last = *w.Port, *w.Port
	case w.First != nil && w.Last != nil:
		p.First, p.Last = *w.First, *w.Last
	default:
		return p, invalid("%s: specify port, or start_port and end_port", path)
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

// tlsSupported returns CodeInvalid if no connection could be served with the port's TLS options.
// Error messages begin with path.
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

// options reads the options of handler http. Error messages begin with path.
func (w *HTTPConfig) options(path string) (HTTPOptions, error) {
	o := HTTPOptions{
		Compress: valueOf(w.Compress), H2Backend: valueOf(w.H2Backend), ReplayCache: w.ReplayCache,
		IdleTimeout: time.Duration(valueOf(w.IdleTimeout)) * time.Second, HeadersRead: time.Duration(valueOf(w.HeadersRead)) * time.Second,
	}
	for i, c := range w.ReplayCache {
		if c.Type != "header" && c.Type != "cookie" || c.Name == "" {
			return o, invalid("%s.replay_cache[%d]: use type header or cookie, and a name", path, i)
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
