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

// Gate protects listeners from requests by web pages. It refuses requests from pages of
// other sites, and from pages whose host name resolves to the server's address (DNS
// rebinding). On paths for the cluster's servers, it refuses requests from all pages.
type Gate struct {
	Names func() []string // returns the server's host names in addition to IP addresses and localhost; nil means none
	Proof Proof           // the proof that the cluster's servers must present
}

// headerServer is the request header in which a server names its cluster. A web page could
// set the header only after a preflight request, which every server refuses.
const headerServer = "Bourse-Server"

// pathsOfMetrics are the paths for monitoring systems, which do not send headerServer.
var pathsOfMetrics = []string{"/worker/metrics", "/proxy/metrics"}

// pathsOfServers are the prefixes of paths for calls between the cluster's servers.
var pathsOfServers = []string{"/worker/", "/view/", "/proxy/"}

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
	return slices.ContainsFunc(pathsOfServers, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

// admitsServer reports whether a server of the cluster sent the request. If not, it refuses
// the request.
func (g *Gate) admitsServer(w http.ResponseWriter, r *http.Request) bool {
	if len(r.Header["Origin"]) > 0 || len(r.Header["Sec-Fetch-Site"]) > 0 {
		refuse(w, http.StatusForbidden, bourse.CodeForbidden, "web pages may not call this path")
		return false
	}
	if !slices.Contains(pathsOfMetrics, r.URL.Path) && r.Header.Get(headerServer) != g.Proof.Cluster {
		refuse(w, http.StatusForbidden, bourse.CodeForbidden, "only servers of this cluster may call this path: "+headerServer+" must name it")
		return false
	}
	if g.Proof.Bearer != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+g.Proof.Bearer)) == 0 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, bourse.CodeUnauthorized, "only servers of this cluster may call this path: its secret is missing or wrong")
		return false
	}
	return true
}

// canonicalHost returns the name or address in a Host header in lower case, without port,
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

// allowsHost reports whether requests with this host are safe from DNS rebinding, because the
// author of a web page cannot have chosen the host. An IP address is the one that the
// browser connected to. DNS does not resolve localhost. The operator has chosen the names
// in g.Names. Browsers never send an empty host.
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

// refuse replies with an error that both API clients and servers can decode.
func refuse(w http.ResponseWriter, status int, code bourse.Code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": text, "message": text, "code": string(code)}) // the client may have disconnected
}

// Proof identifies a server of the cluster to other servers, in addition to its
// certificate. The zero value is the proof for a cluster whose name is empty.
type Proof struct {
	Cluster string
	Bearer  string // secret that is sent and required on loopback; "" means no secret
}

// Show adds the public part of the proof to the headers of a request.
func (p Proof) Show(h http.Header) { h[headerServer] = []string{p.Cluster} }

// ShowTo adds the proof to the headers of a request to the given address. It adds the secret
// only if that is a loopback address.
func (p Proof) ShowTo(h http.Header, address string) {
	p.Show(h)
	if p.Bearer == "" {
		return
	}
	if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().IsLoopback() {
		h["Authorization"] = []string{"Bearer " + p.Bearer}
	}
}
