package serve

import (
	"net/netip"
	"net/url"
	"slices"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// NATSFiles names PEM files: the CA that issued the NATS servers' certificates, and the
// certificate and key with which this server authenticates to them.
type NATSFiles struct{ CA, Cert, Key string }

// Set reports whether any of the files is set.
func (t NATSFiles) Set() bool { return t != NATSFiles{} }

// NATSConfig configures the NATS servers through which a server can be reached. If URLs is
// empty, the server can be reached only at the addresses that it listens on.
type NATSConfig struct {
	URLs  []string  // addresses of the servers of one NATS cluster
	TLS   NATSFiles // CA to trust, and optionally a certificate of this server
	Creds string    // file that contains a user's JWT and seed
	NKey  string    // file that contains a user's seed
	Both  bool      // also a member of the group of servers that are not on NATS; never set for workers
}

// Set reports whether NATS is configured.
func (n *NATSConfig) Set() bool { return len(n.URLs) > 0 }

// Encrypted reports whether connections to the NATS servers must use TLS.
func (n *NATSConfig) Encrypted() bool {
	return slices.ContainsFunc(n.URLs, func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && (u.Scheme == "tls" || u.Scheme == "wss")
	})
}

// Local reports whether all NATS servers are on this host.
func (n *NATSConfig) Local() bool {
	return !slices.ContainsFunc(n.URLs, func(s string) bool {
		u, err := url.Parse(s)
		return err != nil || !onLoopback(u.Hostname())
	})
}

func (n *NATSConfig) bind(flags *pflag.FlagSet) {
	flags.StringSliceVar(&n.URLs, "nats", nil, "`URL` of NATS servers to connect the cluster through (nats://HOST:PORT, tls://…), separated by commas; this host then needs no open port")
	flags.StringVar(&n.TLS.CA, "nats-ca", "", "PEM `file` with the NATS servers' CA (default: the host's CAs and the cluster's CA)")
	flags.StringVar(&n.TLS.Cert, "nats-cert", "", "PEM `file` with a client certificate for NATS (default: the server's own certificate)")
	flags.StringVar(&n.TLS.Key, "nats-key", "", "PEM `file` with the client certificate's key")
	flags.StringVar(&n.Creds, "nats-creds", "", "`file` with the JWT and seed of a NATS user")
	flags.StringVar(&n.NKey, "nats-nkey", "", "`file` with the nkey seed of a NATS user")
}

// problems returns all problems with the config. guarded reports whether servers
// authenticate each other independently of NATS.
func (n *NATSConfig) problems(insecure, guarded bool) []error {
	var out []error
	if !n.Set() {
		if n.Creds != "" || n.NKey != "" || n.TLS.Set() {
			out = append(out, flagErrors(bourse.Errorf(bourse.CodeInvalid, "--nats-creds, --nats-nkey, --nats-ca, --nats-cert and --nats-key require --nats"),
				"nats-creds", "nats-nkey", "nats-ca", "nats-cert", "nats-key"))
		}
		return out
	}
	if (n.TLS.Cert == "") != (n.TLS.Key == "") {
		out = append(out, flagErrors(bourse.Errorf(bourse.CodeInvalid, "--nats-cert and --nats-key must be used together"), "nats-cert", "nats-key"))
	}
	for _, s := range n.URLs {
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" {
			out = append(out, invalid("nats", "--nats %s: use nats://HOST:PORT", bourse.Quoted(s)))
			continue
		}
		if !insecure && !guarded && !onLoopback(u.Hostname()) {
			out = append(out, invalid("nats", "--nats %s is not on this host, and any user of its account could command every worker: "+
				"use certificates of the cluster (--credentials), or --insecure on a network and an account that you trust", u.Redacted()))
		}
	}
	return out
}

func onLoopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
