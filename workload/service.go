package workload

import (
	"encoding/json"
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

// Autostop is what becomes of a machine that nobody uses.
type Autostop string

// What autostop does. Of a machine's services the first in this order decides.
const (
	AutostopOff     Autostop = "off"
	AutostopStop    Autostop = "stop"
	AutostopSuspend Autostop = "suspend" // or stop, where it cannot be suspended
)

// Concurrency is how much of a machine's a proxy gives it at once.
type Concurrency struct {
	Requests bool // count requests instead of connections
	Soft     int  // from so many on others are preferred
	Hard     int  // from so many on it is given no more; 0: no limit
}

// Handler is what a proxy does with a connection, from outside to inside.
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

// TLSOptions are how handler tls speaks.
type TLSOptions struct {
	ALPN       []string // default: h2 and http/1.1 with handler http, none otherwise
	Versions   []string // "TLSv1.2", "TLSv1.3"; default both
	SelfSigned bool     // by default, where there is no certificate
}

// HTTPOptions are how handler http speaks.
type HTTPOptions struct {
	Compress    bool
	H2Backend   bool // the machine speaks HTTP/2 without TLS
	Pristine    bool // replies have no headers of the proxy's
	Headers     []HeaderEdit
	IdleTimeout time.Duration // of a connection without bytes; 0: the proxy's
	HeadersRead time.Duration // for a request's headers; 0: the proxy's
	ReplayCache []ReplayCache
}

// HeaderEdit sets a header of replies to its values, or removes it for none.
type HeaderEdit struct {
	Name   string
	Values []string
}

// ReplayCache keeps where requests were replayed to, by path and by a header or
// cookie of theirs.
type ReplayCache struct {
	PathPrefix  string
	TTL         time.Duration
	Type        string // "header" or "cookie"
	Name        string
	AllowBypass bool
}

const defaultSoft = 20

// ServicesOf returns the services of a config, in its order. CodeInvalid, with the path
// of the value, when one could not be served as it is given.
func ServicesOf(c *bourse.Config) ([]Service, error) {
	var list []wireService
	if len(c.Services) > 0 {
		if err := json.Unmarshal(c.Services, &list); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid config.services: %w", err)
		}
	}
	out := make([]Service, len(list))
	for i := range list {
		if err := list[i].into(&out[i]); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid config.services[%d]%s", i, bourse.MessageOf(err))
		}
	}
	return out, nil
}

// AutostopOf returns what becomes of a machine with these services when nobody uses
// it: the least of what they ask for. Without services it is Off.
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

func validPort(n int) bool { return n > 0 && n < 65536 }

// into fills in the defaults. The error's message begins with the path below
// the service.
func (w *wireService) into(s *Service) error {
	*s = Service{
		Protocol: Protocol(strings.ToLower(w.Protocol)), InternalPort: w.InternalPort,
		Autostart: w.Autostart == nil || *w.Autostart, Autostop: Autostop(w.Autostop),
		Concurrency: Concurrency{Soft: defaultSoft},
	}
	if s.Protocol == "" {
		s.Protocol = ProtocolTCP
	}
	if s.Autostop == "" {
		s.Autostop = AutostopOff
	}
	if w.MinRunning != nil {
		s.MinRunning = *w.MinRunning
	}
	if c := w.Concurrency; c != nil {
		s.Concurrency = Concurrency{Requests: c.Type == "requests", Soft: c.Soft, Hard: c.Hard}
		if s.Concurrency.Soft == 0 {
			s.Concurrency.Soft = defaultSoft
			if c.Hard > 0 {
				s.Concurrency.Soft = min(defaultSoft, c.Hard)
			}
		}
	}
	switch {
	case s.Protocol != ProtocolTCP && s.Protocol != ProtocolUDP:
		return invalid(".protocol %s: use tcp or udp", bourse.Quoted(w.Protocol))
	case s.InternalPort != 0 && !validPort(s.InternalPort):
		return invalid(".internal_port %d: use 1 to 65535, or none for the machine's $PORT", s.InternalPort)
	case s.MinRunning < 0:
		return invalid(".min_machines_running %d: use 0 or more", s.MinRunning)
	case w.Concurrency != nil && w.Concurrency.Type != "" && w.Concurrency.Type != "requests" && w.Concurrency.Type != "connections":
		return invalid(".concurrency.type %s: use connections or requests", bourse.Quoted(w.Concurrency.Type))
	case s.Concurrency.Soft < 0 || s.Concurrency.Hard < 0:
		return invalid(".concurrency: limits are 0 or more")
	}
	for i := range w.Ports {
		p, err := w.Ports[i].port()
		if err != nil {
			return invalid(".ports[%d]%s", i, bourse.MessageOf(err))
		}
		s.Ports = append(s.Ports, p)
	}
	return nil
}
