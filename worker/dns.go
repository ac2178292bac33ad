package worker

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// dns is the part of config.dns, as the Machines API has it, that is acted on.
type dns struct {
	Nameservers  []string    `json:"nameservers"`
	Searches     []string    `json:"searches"`
	Options      []dnsOption `json:"options"`
	Hostname     string      `json:"hostname"`
	HostnameFQDN string      `json:"hostname_fqdn"`
}

type dnsOption struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

var (
	domainPattern = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?$`)
	optionPattern = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// Bounds of what resolv.conf(5) and the kernel take.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxOptions     = 32
	maxDomain      = 253
	maxHostname    = 64
)

// parseDNS reads a config's dns; CodeInvalid for what could not be written
// into a machine's files as it is meant.
func parseDNS(c *bourse.Config) (dns, error) {
	var d dns
	if len(c.DNS) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(c.DNS, &d); err != nil {
		return d, bourse.Errorf(bourse.CodeInvalid, "invalid config.dns: %w", err)
	}
	if len(d.Nameservers) > maxNameservers || len(d.Searches) > maxSearches || len(d.Options) > maxOptions {
		return d, bourse.Errorf(bourse.CodeInvalid, "invalid config.dns: at most %d nameservers, %d searches and %d options", maxNameservers, maxSearches, maxOptions)
	}
	for _, s := range d.Nameservers {
		if _, err := netip.ParseAddr(s); err != nil {
			return d, bourse.Errorf(bourse.CodeInvalid, "invalid config.dns.nameservers: %s is no address", bourse.Quoted(s))
		}
	}
	for _, s := range d.Searches {
		if len(s) > maxDomain || !domainPattern.MatchString(s) {
			return d, bourse.Errorf(bourse.CodeInvalid, "invalid config.dns.searches: %s is no domain", bourse.Quoted(s))
		}
	}
	for _, o := range d.Options {
		if !optionPattern.MatchString(o.Name) || o.Value != "" && !optionPattern.MatchString(o.Value) {
			return d, bourse.Errorf(bourse.CodeInvalid, "invalid config.dns.options: %s", bourse.Quoted(o.Name+":"+o.Value))
		}
	}
	for _, s := range []string{d.Hostname, d.HostnameFQDN} {
		if s != "" && (len(s) > maxHostname || !domainPattern.MatchString(s)) {
			return d, bourse.Errorf(bourse.CodeInvalid, "invalid config.dns.hostname %s", bourse.Quoted(s))
		}
	}
	return d, nil
}

// namesOf adds to a machine's network what its config says of names. Without
// a name of its own the machine's is its id.
func namesOf(m *bourse.Machine, n *driver.Network) (*driver.Network, error) {
	d, err := parseDNS(&m.Config)
	if err != nil {
		return nil, err
	}
	n.Hostname = string(m.ID)
	if d.Hostname != "" {
		n.Hostname = d.Hostname
	}
	if len(d.Nameservers) > 0 {
		n.Resolver = d.Nameservers
	}
	n.Search = d.Searches
	for _, o := range d.Options {
		if o.Value != "" {
			o.Name += ":" + o.Value
		}
		n.Options = append(n.Options, o.Name)
	}
	n.Hosts = slices.Clone(n.Hosts)
	if d.HostnameFQDN != "" {
		n.Hosts = append(n.Hosts, m.PrivateIP.String()+"\t"+d.HostnameFQDN)
	}
	return n, nil
}
