package main

import (
	"encoding/json"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// pathProxyStatus is where a proxy says what it routes where, and why a machine is not
// used; "?app=NAME" is of one app. It names apps of all organisations, so it is for
// brokers alone, which know who may see what.
const pathProxyStatus = "/proxy/status"

// serveStatus writes the balancer's account of the present table.
func (p *proxyServer) serveStatus(w http.ResponseWriter, r *http.Request) {
	status := p.balance.Status(p.routes.current.Load(), bourse.AppName(r.URL.Query().Get("app")))
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(status); err != nil {
		p.log.Debug("write status failed", "err", err) // the asker left
	}
}
