package network

import (
	"log/slog"
	"net/netip"

	"github.com/bourse-dev/bourse"
)

// Config configures a Network.
type Config struct {
	Dir              string         // required; identifies this worker's objects on the host
	Upstream         []string       // name servers for names outside the private networks, "address" or "address:port"; default: those in the host's resolv.conf
	IPv4             netip.Prefix   // range of the machines' addresses for connections to the outside; default 198.18.0.0/15
	Deny             []netip.Prefix // destinations to which machines must not connect; default: DefaultDeny
	PooledNamespaces int            // namespaces prepared in advance; default 4, negative: none
	Region           bourse.Region  // this worker's region, which determines the nearest machines
	Mesh             string         // name of the link to other workers' machines; "" if machines can reach only machines on this host
	Log              *slog.Logger   // default: discards all records

	fault func(point string) // for crash tests
}

// DefaultIPv4 is a range that is reserved for tests of network devices (RFC 2544) and not routed on
// the Internet. It rarely conflicts with hosts' own networks or with container networks, which use
// 172.16.0.0/12.
var DefaultIPv4 = netip.MustParsePrefix("198.18.0.0/15")

// DefaultDeny contains the addresses where cloud providers serve the host's own credentials.
var DefaultDeny = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00:ec2::254/128")}

// private contains all private networks. Packets from machines to private addresses without a route
// are rejected.
var private = netip.MustParsePrefix("fdaa::/16")

func (c Config) withDefaults() Config {
	if !c.IPv4.IsValid() {
		c.IPv4 = DefaultIPv4
	}
	if c.Deny == nil {
		c.Deny = DefaultDeny
	}
	if c.PooledNamespaces == 0 {
		c.PooledNamespaces = 4
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
