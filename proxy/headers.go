package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse/proxy/route"
)

// proxyHeaders contains the request headers that only a proxy may set. They are removed from clients' requests.
// Variants with "_" instead of "-" are removed, too, because programs that read headers as variables (CGI, WSGI)
// cannot distinguish them.
var proxyHeaders = map[string]bool{
	"Fly-Client-Ip": true, "Fly-Forwarded-Port": true, "Fly-Forwarded-Proto": true, "Fly-Forwarded-Ssl": true, "Fly-Region": true,
	"Fly-Request-Id": true, "Fly-Replay-Src": true, "Fly-Replay-Failed": true, "Fly-Replay-Cache-Status": true, "Fly-Preferred-Instance-Unavailable": true,
	"X-Forwarded-For": true, "X-Forwarded-Proto": true, "X-Forwarded-Port": true, "X-Forwarded-Ssl": true, "X-Forwarded-Host": true, "X-Real-Ip": true, "Forwarded": true,
}

// serverName is the proxy's name in Via headers.
const serverName = "bourse"

// client describes the client that sent a request.
type client struct {
	addr  string   // the client's address
	chain []string // addresses in X-Forwarded-For; the last one is the address of the connection itself
	proto string   // "https" or "http"
}

// clientOf determines which client sent a request. If the connection comes from a trusted address, the client is the
// last untrusted address in X-Forwarded-For.
func (p *Proxy) clientOf(r *http.Request) client {
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		peer = r.RemoteAddr
	}
	c := client{addr: peer, chain: []string{peer}, proto: "http"}
	if r.TLS != nil {
		c.proto = "https"
	}
	if !p.trusts(peer) {
		return c
	}
	var before []string
	for _, line := range r.Header["X-Forwarded-For"] {
		for part := range strings.SplitSeq(line, ",") {
			if part = strings.TrimSpace(part); part != "" {
				before = append(before, part)
			}
		}
	}
	c.chain = append(before, peer)
	for _, addr := range slices.Backward(before) {
		if _, err := netip.ParseAddr(addr); err != nil {
			break // an invalid address is not trusted, so all entries before it may be forged
		}
		if c.addr = addr; !p.trusts(addr) {
			break
		}
	}
	if proto := r.Header.Get("X-Forwarded-Proto"); proto == "http" || proto == "https" {
		c.proto = proto
	}
	return c
}

func (p *Proxy) trusts(addr string) bool {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return false
	}
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(p.Trusted, func(of netip.Prefix) bool { return of.Contains(a) })
}

// rewrite turns a client's request into the request that is sent to a machine.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.Out.Context())
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // unchanged, because the machine decides how to parse it
	pr.Out.URL.User = nil
	pr.Out.Host = pr.In.Host
	h := pr.Out.Header
	for key := range h {
		if proxyHeaders[key] || strings.Contains(key, "_") && proxyHeaders[http.CanonicalHeaderKey(strings.ReplaceAll(key, "_", "-"))] {
			delete(h, key)
		}
	}
	port, ssl := strconv.Itoa(x.listener.Port), "off"
	if x.secure() {
		ssl = "on"
	}
	h["Fly-Client-Ip"] = []string{x.client.addr}
	h["Fly-Forwarded-Port"] = []string{port}
	h["Fly-Region"] = []string{string(p.Region)}
	h["Fly-Request-Id"] = []string{x.id}
	h["X-Forwarded-For"] = []string{strings.Join(x.client.chain, ", ")}
	h["X-Forwarded-Proto"] = []string{x.client.proto}
	h["X-Forwarded-Port"] = []string{port}
	h["X-Forwarded-Ssl"] = []string{ssl}
	h["Via"] = append(slices.Clone(h["Via"]), strconv.Itoa(pr.In.ProtoMajor)+via(pr.In.ProtoMajor, pr.In.ProtoMinor))
}

func via(major, minor int) string {
	if major >= 2 {
		return " " + serverName
	}
	return "." + strconv.Itoa(minor) + " " + serverName
}

// prepareRequest adapts a request to the machine that was chosen for an attempt.
func prepareRequest(out *http.Request, to *route.Target, t *attempt, attempts int) {
	u := *out.URL
	// The host is a placeholder, because the transport connects to only one machine. The Host header does not change.
	u.Scheme, u.Host = "http", "machine"
	out.URL = &u
	upgrades := to.Port.HTTP.H2Backend && out.Header["Upgrade"] != nil
	if t.notPreferred != "" || attempts > 1 || upgrades {
		out.Header = out.Header.Clone() // a copy, because the previous attempt may still be sending the header
		out.Header.Del("Fly-Preferred-Instance-Unavailable")
	}
	if upgrades { // HTTP/2 does not support upgrades, and servers may ignore them (RFC 9110, section 7.8)
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
	}
	if t.notPreferred != "" {
		out.Header.Set("Fly-Preferred-Instance-Unavailable", string(t.notPreferred))
	}
}

// modifyResponse turns a machine's reply into the reply that is sent to the client.
func (p *Proxy) modifyResponse(resp *http.Response) error {
	x := exchangeOf(resp.Request.Context())
	options := &x.target.Port.HTTP
	if options.Compress && resp.StatusCode != http.StatusSwitchingProtocols {
		compress(x.in, resp)
	}
	p.addProxyHeaders(&x.request, x.target, resp.Header)
	for _, e := range options.Headers {
		if key := http.CanonicalHeaderKey(e.Name); len(e.Values) == 0 {
			delete(resp.Header, key)
		} else {
			resp.Header[key] = slices.Clone(e.Values)
		}
	}
	return nil
}

// addProxyHeaders adds the proxy's own headers to a reply.
func (p *Proxy) addProxyHeaders(r *request, t *route.Target, h http.Header) {
	if t != nil && t.Port.HTTP.Pristine {
		return
	}
	h.Set("Server", "Bourse")
	h.Set("Fly-Request-Id", r.id)
	h.Add("Via", strconv.Itoa(r.in.ProtoMajor)+via(r.in.ProtoMajor, r.in.ProtoMinor))
}
