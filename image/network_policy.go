package image

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
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
}

// allowed returns CodeInvalid if a registry is not allowed.
func (r *networkPolicy) allowed(host string) error {
	if r.registries == nil || slices.Contains(r.registries, host) {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "registry %s is not allowed on this worker (--registry)", bourse.Quoted(host))
}

// dialer returns a dialer for connections to a registry's own host and to the hosts that its responses refer to. The
// dialer checks each address after name resolution. known means that the operator has configured the registry; the
// dialer then allows all addresses.
func (r *networkPolicy) dialer(known bool, timeout time.Duration) *net.Dialer {
	d := &net.Dialer{Timeout: timeout}
	if r.private || known {
		return d
	}
	proxies := proxyPorts()
	d.Control = func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("address %s: %w", bourse.Quoted(address), err)
		}
		if len(proxies) > 0 && slices.Contains(proxies, to.Port()) {
			return nil // a proxy configured by the operator applies its own rules
		}
		if !public(to.Addr()) {
			return errPrivate()
		}
		return nil
	}
	return d
}

// carrierNAT is the address block for carrier-grade NAT (RFC 6598), which is effectively private.
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// public reports whether an address is reachable from the public Internet.
func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && !carrierNAT.Contains(a)
}

// proxyPorts returns the ports of the HTTP proxies that are configured in the environment.
func proxyPorts() []uint16 {
	var out []uint16
	for _, scheme := range []string{"http", "https"} {
		proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "registry.example.com"}})
		if err != nil || proxy == nil {
			continue
		}
		port := proxy.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443", "socks5": "1080"}[proxy.Scheme]
		}
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			out = append(out, uint16(n))
		}
	}
	return out
}
