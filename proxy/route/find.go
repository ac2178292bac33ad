package route

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/bourse-dev/bourse"
)

// maxHost is the maximum length of a host name (RFC 1035, section 2.3.4).
const maxHost = 253

// Find returns the target of a host name and port. The host name may be internationalized, may be in any case, and
// may have a trailing dot. Errors: not_found. The message is safe to show to the client, because it does not reveal
// whether an app without services exists.
func (t *Table) Find(host string, port int) (*Target, error) { return t.find(host, port, false) }

// FindAny is like Find, but for a listener that serves all of an app's HTTP ports, such as the one of "bourse dev".
// If the app does not serve the port, FindAny returns the app's first HTTP service.
func (t *Table) FindAny(host string, port int) (*Target, error) { return t.find(host, port, true) }

func (t *Table) find(host string, port int, anyPort bool) (*Target, error) {
	s := t.byHost(host)
	if s == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no app serves host %s", bourse.Quoted(host))
	}
	return s.find(port, anyPort)
}

// AppPort returns the target of an app's port. Errors: not_found.
func (t *Table) AppPort(name bourse.AppName, port int) (*Target, error) {
	s := t.apps[name]
	if s == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "app %s does not exist or serves no ports", bourse.Quoted(string(name)))
	}
	return s.find(port, false)
}

func (s *servedApp) find(port int, anyPort bool) (*Target, error) {
	target := s.at(port)
	if target == nil && anyPort {
		target = s.http()
	}
	if target == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "app %s does not serve port %d; it serves %s", s.app.Name, port, s.listPorts())
	}
	return target, nil
}

// listPorts lists the ports that an app serves, as text for an error message. It shortens a long list.
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

// byHost returns the app to which a host name belongs. Names assigned by the operator take precedence. Otherwise, if
// the name consists of a label and one of the domains, the label is the app's name.
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
	return t.apps[bourse.AppName(label)] // the map contains only valid names
}

// Names returns the host names at which an app may be served. Names assigned by the operator come first. A name below
// localhost, which other hosts cannot use, comes last. Some of the names may actually belong to other apps; use Find
// to check.
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

// normalHost converts a host name to the form in which tables store it: in lower case, in ASCII, and without a
// trailing dot. If the name is invalid, it returns false.
func normalHost(host string) (string, bool) {
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1] // an IPv6 address, which is valid only if the operator has assigned it
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
