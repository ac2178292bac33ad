package bourse

import (
	"net/netip"
	"regexp"
)

// DNS is a config's dns section, as in the Machines API.
type DNS struct {
	SkipRegistration bool             `json:"skip_registration,omitempty"`
	Nameservers      []string         `json:"nameservers,omitempty"`
	Searches         []string         `json:"searches,omitempty"`
	Options          []DNSOption      `json:"options,omitempty"`
	ForwardRules     []DNSForwardRule `json:"dns_forward_rules,omitempty"` // not acted on
	Hostname         string           `json:"hostname,omitempty"`
	HostnameFQDN     string           `json:"hostname_fqdn,omitempty"`
}

// DNSOption is an option of resolv.conf(5).
type DNSOption struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
}

// DNSForwardRule sends questions about names below a domain to another server.
type DNSForwardRule struct {
	Basename string `json:"basename,omitempty"`
	Addr     string `json:"addr,omitempty"`
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

// Validate returns CodeInvalid for values that would break a machine's resolv.conf or
// hosts file.
func (d *DNS) Validate() error {
	if d == nil {
		return nil
	}
	if len(d.Nameservers) > maxNameservers || len(d.Searches) > maxSearches || len(d.Options) > maxOptions {
		return Errorf(CodeInvalid, "invalid config.dns: at most %d nameservers, %d searches and %d options", maxNameservers, maxSearches, maxOptions)
	}
	for _, s := range d.Nameservers {
		if _, err := netip.ParseAddr(s); err != nil {
			return Errorf(CodeInvalid, "invalid config.dns.nameservers: %s is no address", Quoted(s))
		}
	}
	for _, s := range d.Searches {
		if len(s) > maxDomain || !domainPattern.MatchString(s) {
			return Errorf(CodeInvalid, "invalid config.dns.searches: %s is no domain", Quoted(s))
		}
	}
	for _, o := range d.Options {
		if !optionPattern.MatchString(o.Name) || o.Value != "" && !optionPattern.MatchString(o.Value) {
			return Errorf(CodeInvalid, "invalid config.dns.options: %s", Quoted(o.Name+":"+o.Value))
		}
	}
	for _, s := range []string{d.Hostname, d.HostnameFQDN} {
		if s != "" && (len(s) > maxHostname || !domainPattern.MatchString(s)) {
			return Errorf(CodeInvalid, "invalid config.dns.hostname %s", Quoted(s))
		}
	}
	return nil
}
