package bourse

import (
	"encoding/json"
	"net/netip"
	"regexp"
)

// DNS is config.dns, as the Machines API has it.
type DNS struct {
	SkipRegistration bool             `json:"skip_registration"`
	Nameservers      []string         `json:"nameservers"`
	Searches         []string         `json:"searches"`
	Options          []DNSOption      `json:"options"`
	ForwardRules     []DNSForwardRule `json:"dns_forward_rules"` // not acted on
	Hostname         string           `json:"hostname"`
	HostnameFQDN     string           `json:"hostname_fqdn"`
}

// DNSOption is an option of resolv.conf(5).
type DNSOption struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// DNSForwardRule sends questions about names below a domain to another server.
type DNSForwardRule struct {
	Basename string `json:"basename"`
	Addr     string `json:"addr"`
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

// ParseDNS reads the config's dns; CodeInvalid for what could not be written
// into a machine's files as it is meant.
func (c *Config) ParseDNS() (DNS, error) {
	var d DNS
	if len(c.DNS) == 0 {
		return d, nil
	}
	if err := json.Unmarshal(c.DNS, &d); err != nil {
		return d, Errorf(CodeInvalid, "invalid config.dns: %w", err)
	}
	if len(d.Nameservers) > maxNameservers || len(d.Searches) > maxSearches || len(d.Options) > maxOptions {
		return d, Errorf(CodeInvalid, "invalid config.dns: at most %d nameservers, %d searches and %d options", maxNameservers, maxSearches, maxOptions)
	}
	for _, s := range d.Nameservers {
		if _, err := netip.ParseAddr(s); err != nil {
			return d, Errorf(CodeInvalid, "invalid config.dns.nameservers: %s is no address", Quoted(s))
		}
	}
	for _, s := range d.Searches {
		if len(s) > maxDomain || !domainPattern.MatchString(s) {
			return d, Errorf(CodeInvalid, "invalid config.dns.searches: %s is no domain", Quoted(s))
		}
	}
	for _, o := range d.Options {
		if !optionPattern.MatchString(o.Name) || o.Value != "" && !optionPattern.MatchString(o.Value) {
			return d, Errorf(CodeInvalid, "invalid config.dns.options: %s", Quoted(o.Name+":"+o.Value))
		}
	}
	for _, s := range []string{d.Hostname, d.HostnameFQDN} {
		if s != "" && (len(s) > maxHostname || !domainPattern.MatchString(s)) {
			return d, Errorf(CodeInvalid, "invalid config.dns.hostname %s", Quoted(s))
		}
	}
	return d, nil
}
