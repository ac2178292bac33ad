package edge

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// StatusHandler returns a handler that reports the proxy's routes. For each route, it lists the URLs and the
// machines. For each machine, it reports whether requests can reach the machine and, if not, why. "?app=NAME" selects
// one app. Only brokers may read the report, because it contains all organizations' app names.
func (c *Config) StatusHandler(b *balance.Balancer, routes *route.Follower) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		table := routes.Table()
		app := bourse.AppName(r.URL.Query().Get("app"))
		status := b.Status(table, app)
		targets := table.Targets()
		if app != "" {
			targets = table.App(app)
		}
		for i, t := range targets {
			status.Routes[i].URLs = c.urlsOf(routes, table, t)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(status) // the broker may have disconnected
	})
}

// urlsOf returns the URLs at which the listeners serve a target, best first. URLs with names assigned by the operator
// come first. For each name, https URLs come first, except for names below localhost, for which clients would not
// trust a certificate.
func (c *Config) urlsOf(routes *route.Follower, table *route.Table, t *route.Target) (out []string) {
	for _, s := range c.Streams {
		if s.App == t.App.Name && s.Port >= t.Port.First && s.Port <= t.Port.Last && !t.Port.Has(workload.HandlerHTTP) {
			out = append(out, "tcp://"+s.Addr().String())
		}
	}
	for _, name := range table.Names(t.App.Name) {
		local := strings.HasSuffix(name, ".localhost")
		var best, others []string
		for _, w := range c.Web {
			at, err := netip.ParseAddrPort(w.Addr().String())
			if err != nil || local && !at.Addr().IsLoopback() && !at.Addr().IsUnspecified() {
				continue
			}
			if got, err := routes.FindIn(table, name, w.Port); err != nil || got != t {
				continue
			}
			if w.TLS != local { // clients probably trust the certificate, or do not need one
				best = append(best, urlOf(name, at.Port(), w.TLS))
			} else {
				others = append(others, urlOf(name, at.Port(), w.TLS))
			}
		}
		out = append(append(out, best...), others...)
	}
	return out
}

func urlOf(name string, port uint16, tls bool) string {
	u := url.URL{Scheme: "http", Host: name, Path: "/"}
	usual := uint16(80)
	if tls {
		u.Scheme, usual = "https", 443
	}
	if port != usual {
		u.Host = net.JoinHostPort(name, strconv.Itoa(int(port)))
	}
	return u.String()
}
