package admission

import (
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Gate protects every listener. It lets no web page in: not
// one of another site, not one that has its own name resolve to our address,
// and none at all where only servers of the cluster may connect.
type Gate struct {
	Names func() []string // by which clients may call us, besides IP addresses and localhost; nil: none
	Proof Proof           // that servers of the cluster show
}

// headerServer names the cluster of the server that makes a request. A page
// could set it only with the leave of a preflight request, which no server
// of ours answers.
const headerServer = "Bourse-Server"

// pathsOfMetrics are for monitoring systems, which set no headers of ours.
var pathsOfMetrics = []string{"/worker/metrics", "/proxy/metrics"}

// pathsOfServers begin the paths at which servers of the cluster call one another.
var pathsOfServers = []string{"/worker/", "/view/", "/proxy/"}

// Wrap returns h behind the gate. What may not pass gets 421 when it calls us
// by a name that is not ours, and else 403.
func (g *Gate) Wrap(h http.Handler) http.Handler {
	pages := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.calls(canonicalHost(r.Host)) {
			refuse(w, http.StatusMisdirectedRequest, bourse.CodeForbidden,
				"this server is not called "+bourse.Quoted(r.Host)+": --server-name says by which names it is")
			return
		}
		if err := pages.Check(r); err != nil {
			refuse(w, http.StatusForbidden, bourse.CodeForbidden, "a page of another site may not do this: "+err.Error())
			return
		}
		if forServers(r.URL.Path) && !g.admitsServer(w, r) {
			return
		}
		h.ServeHTTP(w, r)
	})
}

func forServers(path string) bool {
	return slices.ContainsFunc(pathsOfServers, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// admitsServer reports whether a server of the cluster makes the request, and
// answers it when not.
func (g *Gate) admitsServer(w http.ResponseWriter, r *http.Request) bool {
	if len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0 {
		refuse(w, http.StatusForbidden, bourse.CodeForbidden, "no web page has business here")
		return false
	}
	if !slices.Contains(pathsOfMetrics, r.URL.Path) && r.Header.Get(headerServer) != g.Proof.Cluster {
		refuse(w, http.StatusForbidden, bourse.CodeForbidden, "only servers of the cluster have business here: "+headerServer+" names theirs")
		return false
	}
	if g.Proof.Bearer != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+g.Proof.Bearer)) == 0 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, bourse.CodeUnauthorized, "only servers of the cluster have business here: they show its secret")
		return false
	}
	return true
}

// canonicalHost returns the name or address in a Host header, without port,
// brackets, final dot and upper case.
func canonicalHost(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return host // of no name
		}
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// calls reports whether host is what a page cannot have chosen: an address is
// where the browser went, localhost is not in anyone's DNS, and the rest is
// what the operator has. Without a name no browser asks.
func (g *Gate) calls(host string) bool {
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return true
	}
	return g.Names != nil && slices.ContainsFunc(g.Names(), func(name string) bool { return canonicalHost(name) == host })
}

// CheckName reports CodeInvalid unless name is a host name that clients can
// call a server by, without scheme and port.
func CheckName(name string) error {
	if name == "" || canonicalHost(name) != strings.ToLower(name) || strings.ContainsAny(name, "/:@* ") {
		return bourse.Errorf(bourse.CodeInvalid, "%s is not a host name: use one such as api.example.com", bourse.Quoted(name))
	}
	return nil
}

// refuse answers with an error as both the API and the servers' calls read it.
func refuse(w http.ResponseWriter, status int, code bourse.Code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text, "message": text, "code": string(code)}) // the client may have left
}

// Proof is how a server of the cluster proves to others that it is one, besides
// its certificate. The zero value proves membership of the cluster "".
type Proof struct {
	Cluster string
	Bearer  string // shown on loopback, and asked for there; "" is none
}

// Show adds what is no secret of the proof to the header of a request.
func (p Proof) Show(h http.Header) { h[headerServer] = []string{p.Cluster} }

// ShowTo adds the proof to the header of a request to an address. What is secret
// does not leave the host.
func (p Proof) ShowTo(h http.Header, address string) {
	p.Show(h)
	if p.Bearer == "" {
		return
	}
	if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().IsLoopback() {
		h["Authorization"] = []string{"Bearer " + p.Bearer}
	}
}
