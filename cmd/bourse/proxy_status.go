package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/proxy/edge"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// pathProxyStatus is where a proxy says what it routes where, and why a machine is not
// used; "?app=NAME" is of one app. It names apps of all organisations, so it is for
// brokers alone, which know who may see what.
const pathProxyStatus = tenant.ProxyStatusPath

// serveStatus writes the balancer's account of the present table.
func (p *proxyServer) serveStatus(w http.ResponseWriter, r *http.Request) {
	table := p.routes.current.Load()
	app := bourse.AppName(r.URL.Query().Get("app"))
	status := p.balance.Status(table, app)
	targets := table.Targets()
	if app != "" {
		targets = table.App(app)
	}
	for i, t := range targets {
		status.Routes[i].URLs = p.urlsOf(table, t)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(status); err != nil {
		p.log.Debug("write status failed", "err", err) // the asker left
	}
}

// urlsOf returns the URLs at which this proxy's listeners serve a target, the best
// first: names that the operator chose, and TLS.
func (p *proxyServer) urlsOf(table *route.Table, t *route.Target) (out []string) {
	for _, s := range p.edge.Streams {
		if s.App == t.App.Name && s.Port >= t.Port.First && s.Port <= t.Port.Last && !t.Port.Has(workload.HandlerHTTP) {
			out = append(out, "tcp://"+s.Addr().String())
		}
	}
	for _, name := range table.Names(t.App.Name) {
		local := strings.HasSuffix(name, ".localhost")
		var found []string
		for _, w := range p.edge.Web {
			at, err := netip.ParseAddrPort(w.Addr().String())
			if err != nil || local && !at.Addr().IsLoopback() && !at.Addr().IsUnspecified() {
				continue
			}
			if got, err := p.routes.find(table, name, w.Port); err != nil || got != t {
				continue
			}
			one := urlOf(name, at.Port(), w)
			if w.TLS != local { // where a certificate is likely to be believed
				found = append([]string{one}, found...)
			} else {
				found = append(found, one)
			}
		}
		out = append(out, found...)
	}
	return out
}

func urlOf(name string, port uint16, w edge.Web) string {
	u := url.URL{Scheme: "http", Host: name, Path: "/"}
	usual := uint16(80)
	if w.TLS {
		u.Scheme, usual = "https", 443
	}
	if port != usual {
		u.Host = net.JoinHostPort(name, strconv.Itoa(int(port)))
	}
	return u.String()
}
