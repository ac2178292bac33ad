package image

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// networkPolicy restricts the registries and addresses to which a worker connects. Users choose the images, and
// registries' responses may refer to other hosts. Without restrictions, either could therefore make a worker connect to
// any address in its network.
type networkPolicy struct {
	private    bool     // whether private, loopback and link-local addresses are allowed
	registries []string // the only allowed registries; nil: all are allowed
	proxies    []string // addresses of the HTTP proxies that the operator has configured
}

// allowed returns CodeInvalid if a registry is not allowed.
func (r *networkPolicy) allowed(host string) error {
	if r.registries == nil || slices.Contains(r.registries, host) {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "registry %s is not allowed on this worker (--registry)", bourse.Quoted(host))
}

// dial returns a function that connects to a registry's own host, to the hosts that its responses refer to, and to the
// proxies. The function checks each address after name resolution, except those of proxies, which apply their own
// rules. known means that the operator has configured the registry; the function then allows all addresses.
func (r *networkPolicy) dial(known bool, timeout time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	unchecked := &net.Dialer{Timeout: timeout}
	if r.private || known {
		return unchecked.DialContext
	}
	checked := &net.Dialer{Timeout: timeout, Control: onlyPublic}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(r.proxies, address) {
			return unchecked.DialContext(ctx, network, address)
		}
		return checked.DialContext(ctx, network, address)
	}
}

// onlyPublic returns an error for an address that is not reachable from the public Internet.
func onlyPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", bourse.Quoted(address), err)
	}
	if !public(to.Addr()) {
		return errPrivate()
	}
	return nil
}

// carrierNAT is the address block for carrier-grade NAT (RFC 6598), which is effectively private.
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// public reports whether an address is reachable from the public Internet.
func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && !carrierNAT.Contains(a)
}

// proxyAddresses returns the addresses of the HTTP proxies that proxyFor returns, in the form in which http.Transport
// passes them to its dialer.
func proxyAddresses(proxyFor func(*http.Request) (*url.URL, error)) []string {
	var out []string
	for _, scheme := range []string{"http", "https"} {
		proxy, err := proxyFor(&http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.example.com"}})
		if err != nil || proxy == nil {
			continue
		}
		port := proxy.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[proxy.Scheme]
		}
		out = append(out, net.JoinHostPort(proxy.Hostname(), port))
	}
	return out
}
