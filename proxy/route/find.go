package route

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/bourse-dev/bourse"
)

// maxHost is how long the name of a host can be (RFC 1035, 2.3.4).
const maxHost = 253

// Find returns where requests for a host name and a port go. The host may be in any
// case, with a trailing dot, and in letters of any language. Errors: not_found, with
// a message for the client: it does not say whether an app exists that serves
// nothing.
func (t *Table) Find(host string, port int) (*Target, error) { return t.find(host, port, false) }

// FindAny is Find for a listener that stands for every HTTP port of an app, as that of
// "bourse dev" does: where the app serves nothing at the port, its first HTTP
// service is meant.
func (t *Table) FindAny(host string, port int) (*Target, error) { return t.find(host, port, true) }

func (t *Table) find(host string, port int, anyPort bool) (*Target, error) {
	s := t.byHost(host)
	if s == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no app serves host %s", bourse.Quoted(host))
	}
	return s.find(port, anyPort)
}

// AppPort returns where requests for an app, by its name, and a port go. Errors:
// not_found, as Find's.
func (t *Table) AppPort(name bourse.AppName, port int) (*Target, error) {
	s := t.apps[name]
	if s == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no app %s serves anything", bourse.Quoted(string(name)))
	}
	return s.find(port, false)
}

func (s *servedApp) find(port int, anyPort bool) (*Target, error) {
	target := s.at(port)
	if target == nil && anyPort {
		target = s.http()
	}
	if target == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "app %s serves no port %d; it serves %s", s.app.Name, port, s.listPorts())
	}
	return target, nil
}

// listPorts says which ports an app serves, not more than a person reads.
func (s *servedApp) listPorts() string {
	const most = 16
	var out []string
	for i := 0; i < len(s.targets); i++ {
		if len(out) == most {
			out = append(out, "…")
			break
		}
		first := s.targets[i].Port.First
		for i+1 < len(s.targets) && s.targets[i].Port.Last+1 == s.targets[i+1].Port.First && s.targets[i].Port.First != s.targets[i].Port.Last {
			i++
		}
		text := strconv.Itoa(first)
		if last := s.targets[i].Port.Last; last != first {
			text += "-" + strconv.Itoa(last)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// byHost returns what a host name means: the app that the operator gave it to, or
// that of its first label below one of the domains.
func (t *Table) byHost(host string) *servedApp {
	host, ok := normalHost(host)
	if !ok {
		return nil
	}
	if name, given := t.hosts[host]; given {
		return t.apps[name]
	}
	label, domain, _ := strings.Cut(host, ".")
	if !t.domains[domain] {
		return nil
	}
	return t.apps[bourse.AppName(label)] // which has valid names only
}

// Names returns the host names that an app may have, those that the operator gave it
// first, and that of this host, which others cannot reach, last. A port of it is there
// or not, and another app may have the name: Find says.
func (t *Table) Names(app bourse.AppName) []string {
	var given, below, local []string
	for host, name := range t.hosts {
		if name == app {
			given = append(given, host)
		}
	}
	for domain := range t.domains {
		name := string(app) + "." + domain
		if domain == "localhost" {
			local = append(local, name)
		} else {
			below = append(below, name)
		}
	}
	slices.Sort(given)
	slices.Sort(below)
	return slices.Concat(given, below, local)
}

// normalHost returns a host name as the tables have it: in lower case, in ASCII,
// without a trailing dot. It is false for what cannot be one.
func normalHost(host string) (string, bool) {
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1] // an address of IPv6, which only an operator's table could have
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 4*maxHost {
		return "", false
	}
	for i := range len(host) {
		if host[i] >= 0x80 {
			ascii, err := idna.Lookup.ToASCII(host)
			return strings.TrimSuffix(ascii, "."), err == nil && ascii != "" && len(ascii) <= maxHost
		}
	}
	if len(host) > maxHost {
		return "", false
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.String(), true
	}
	return strings.ToLower(host), true
}
