package network

import (
	"log/slog"
	"net/netip"
)

// Config is where a Network keeps its files and what it asks.
type Config struct {
	Dir      string         // required; absolute or not, it identifies this worker's objects on the host
	Upstream []string       // name servers for all other names, "address" or "address:port"; default those of the host's resolv.conf
	IPv4     netip.Prefix   // what machines' addresses for the outside are taken from; default 198.18.0.0/15
	Deny     []netip.Prefix // where machines may not connect to; default the link-local networks, where clouds serve credentials
	Spares   int            // namespaces that are kept ready; default 4, negative: none
	Log      *slog.Logger   // default: discard

	fault func(point string) // of crash tests
}

// DefaultIPv4 is set aside for tests of network devices (RFC 2544) and is
// routed nowhere, and hardly a host has used it: container networks take
// theirs from 172.16.0.0/12.
var DefaultIPv4 = netip.MustParsePrefix("198.18.0.0/15")

// DefaultDeny keeps machines from what serves a host's own credentials.
var DefaultDeny = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00:ec2::254/128")}

// private is where all private networks are. What has no route is not
// sent out.
var private = netip.MustParsePrefix("fdaa::/16")

func (c Config) withDefaults() Config {
	if !c.IPv4.IsValid() {
		c.IPv4 = DefaultIPv4
	}
	if c.Deny == nil {
		c.Deny = DefaultDeny
	}
	if c.Spares == 0 {
		c.Spares = 4
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
