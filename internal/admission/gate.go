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

// Gate protects listeners from requests by web pages. It refuses requests from pages of other
// sites, and from pages whose host name resolves to the server's address (DNS rebinding). On the
// paths for calls between the cluster's servers, it refuses requests from any page.
type Gate struct {
	Names func() []string // returns the server's host names in addition to IP addresses and localhost; nil means none
	Proof Proof           // the proof that the cluster's servers must present
}

// headerServer is the request header in which a server names its cluster. A web page could
// set the header only after a preflight request, which every server refuses.
const headerServer = "Bourse-Server"

// metricsPaths are the paths that monitoring systems request. They do not send headerServer.
var metricsPaths = []string{"/worker/metrics", "/proxy/metrics"}

// serverPaths are the path prefixes for calls between the cluster's servers.
var serverPaths = []string{"/worker/", "/view/", "/proxy/"}

// Wrap returns a handler that passes admitted requests to h. A request for an unknown
// host name gets status 421, and any other refused request gets status 403.
func (g *Gate) Wrap(h http.Handler) http.Handler {
	pages := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.allowsHost(canonicalHost(r.Host)) {
			refuse(w, http.StatusMisdirectedRequest, bourse.CodeForbidden,
				"this server is not called "+bourse.Quoted(r.Host)+": add the name with --server-name")
			return
		}
		if err := pages.Check(r); err != nil {
			refuse(w, http.StatusForbidden, bourse.CodeForbidden, "request refused: "+err.Error())
			return
		}
		if forServers(r.URL.Path) && !g.admitsServer(w, r) {
			return
		}
		h.ServeHTTP(w, r)
	})
}

func forServers(path string) bool {
	return slices.ContainsFunc(serverPaths, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// admitsServer reports whether a server of the cluster sent the request. If not, it refuses
// the request.
func (g *Gate) admitsServer(w http.ResponseWriter, r *http.Request) bool {
	if len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0 {
		refuse(w, http.StatusForbidden, bourse.CodeForbidden, "web pages may not call this path")
		return false
	}
	if !slices.Contains(metricsPaths, r.URL.Path) && r.Header.Get(headerServer) != g.Proof.Cluster {
		refuse(w, http.StatusForbidden, bourse.CodeForbidden, "only servers of this cluster may call this path: the header "+headerServer+" must contain the cluster's name")
		return false
	}
	if g.Proof.Bearer != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+g.Proof.Bearer)) == 0 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, bourse.CodeUnauthorized, "only servers of this cluster may call this path: the cluster's secret is missing or wrong")
		return false
	}
	return true
}

// canonicalHost returns the name or address in a Host header in lower case, without the port,
// brackets and final dot.
func canonicalHost(host string) string {
	if name, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return host // not a valid name
		}
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// allowsHost reports whether a request with this host is safe from DNS rebinding, which means that
// the author of a web page cannot control what the host refers to. This is true in four cases: the
// host is an IP address, to which the browser has therefore connected; it is localhost, which
// browsers do not look up in DNS; it is one of g.Names, which the operator has chosen; or it is
// empty, which it never is in a browser's request.
func (g *Gate) allowsHost(host string) bool {
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return true
	}
	return g.Names != nil && slices.ContainsFunc(g.Names(), func(name string) bool { return canonicalHost(name) == host })
}

// CheckName checks that name is a host name without scheme and port. Errors: invalid.
func CheckName(name string) error {
	if name == "" || canonicalHost(name) != strings.ToLower(name) || strings.ContainsAny(name, "/:@* ") {
		return bourse.Errorf(bourse.CodeInvalid, "%s is not a host name: use one such as api.example.com", bourse.Quoted(name))
	}
	return nil
}

// refuse replies with an error in a format that both API clients and the cluster's servers can
// decode.
func refuse(w http.ResponseWriter, status int, code bourse.Code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text, "message": text, "code": string(code)}) // the client may have disconnected
}

// Proof identifies a server to the cluster's other servers, in addition to its certificate. The
// zero value is valid for a cluster with an empty name.
type Proof struct {
	Cluster string
	Bearer  string // secret that is sent and required on loopback; "" means no secret
}

// Show adds the public part of the proof to the headers of a request.
func (p Proof) Show(h http.Header) { h[headerServer] = []string{p.Cluster} }

// ShowTo adds the proof to the headers of a request to the given address. It adds p.Bearer only if
// the address is on loopback.
func (p Proof) ShowTo(h http.Header, address string) {
	p.Show(h)
	if p.Bearer == "" {
		return
	}
	if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().IsLoopback() {
		h["Authorization"] = []string{"Bearer " + p.Bearer}
	}
}
