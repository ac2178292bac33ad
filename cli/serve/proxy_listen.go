package serve

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// WebListen is an address where a proxy serves HTTP.
type WebListen struct {
	Addr netip.AddrPort
	Port int // external port of the services; 0 means any port whose handler is http
}

// StreamListen is an address where a proxy accepts connections, and the app and port to
// which it forwards them.
type StreamListen struct {
	Addr netip.AddrPort
	App  bourse.AppName
	Port int // external port of the app's service
}

// parseWeb returns a parser for IP:PORT, IP:PORT=PORT and IP:PORT=any. usual is the
// services' external port if the user specifies only IP:PORT.
func parseWeb(usual int) func([]string) ([]WebListen, error) {
	return func(list []string) ([]WebListen, error) {
		out := make([]WebListen, len(list))
		for i, text := range list {
			addr, port, given := strings.Cut(text, "=")
			var err error
			if out[i].Addr, err = cli.ParseListen(addr); err != nil {
				return nil, err
			}
			switch out[i].Port = usual; {
			case port == "any":
				out[i].Port = 0
			case given:
				if out[i].Port, err = parsePort(port); err != nil {
					return nil, err
				}
			}
		}
		return out, nil
	}
}

// parseStreams parses values of the form IP:PORT=APP:PORT.
func parseStreams(list []string) ([]StreamListen, error) {
	out := make([]StreamListen, len(list))
	for i, text := range list {
		addr, to, ok := strings.Cut(text, "=")
		app, port, whole := strings.Cut(to, ":")
		if !ok || !whole {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s: use IP:PORT=APP:PORT, such as :5432=db:5432", bourse.Quoted(text))
		}
		s := StreamListen{App: bourse.AppName(app)}
		var err error
		if s.Addr, err = cli.ParseListen(addr); err != nil {
			return nil, err
		}
		if err := s.App.Validate(); err != nil {
			return nil, err
		}
		if s.Port, err = parsePort(port); err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

func parsePort(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, bourse.Errorf(bourse.CodeInvalid, "port %s: use 1 to 65535", bourse.Quoted(s))
	}
	return int(n), nil
}

// parseHosts parses values of the form NAME=APP.
func parseHosts(list []string) (map[string]bourse.AppName, error) {
	out := make(map[string]bourse.AppName, len(list))
	for _, text := range list {
		host, app, ok := strings.Cut(text, "=")
		if !ok {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s: use NAME=APP, such as shop.example.com=web", bourse.Quoted(text))
		}
		if err := admission.CheckName(host); err != nil {
			return nil, err
		}
		name := bourse.AppName(app)
		if err := name.Validate(); err != nil {
			return nil, err
		}
		out[strings.ToLower(host)] = name
	}
	return out, nil
}

// parsePrefixes parses addresses and networks, separated by commas.
func parsePrefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		for part := range strings.SplitSeq(text, ",") {
			part = strings.TrimSpace(part)
			p, err := netip.ParsePrefix(part)
			if a, addrErr := netip.ParseAddr(part); addrErr == nil {
				p, err = netip.PrefixFrom(a, a.BitLen()), nil
			}
			if err != nil {
				return nil, bourse.Errorf(bourse.CodeInvalid, "%s: use an address or a network such as 10.0.0.0/8", bourse.Quoted(part))
			}
			out = append(out, p.Masked())
		}
	}
	return out, nil
}
