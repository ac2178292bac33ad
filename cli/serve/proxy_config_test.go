package serve

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
)

func proxyConfig(t *testing.T, args ...string) *ProxyConfig {
	t.Helper()
	var c ProxyConfig
	settle(t, &c, args...)
	return &c
}

func TestProxyConfig(t *testing.T) {
	t.Parallel()
	c := proxyConfig(t,
		"--http", ":80", "--http", "127.0.0.1:8081=8081", "--http", ":8082=any", "--https", "[::]:443", "--tcp", ":5432=db:5433", "--domain", "example.com,example.org",
		"--host", "Shop.example.com=web", "--proxy-protocol-from", "10.0.0.1,10.1.2.3/16", "--trust-forwarded-from", "fd00::/8",
		"--acme", "ops@example.com", "--data", "/var/lib/proxy")
	if err := problemsOf(c); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort
	want := &ProxyConfig{
		HTTP: []WebListen{{at("0.0.0.0:80"), 80}, {at("127.0.0.1:8081"), 8081}, {at("0.0.0.0:8082"), 0}}, HTTPS: []WebListen{{at("[::]:443"), 443}},
		TCP: []StreamListen{{at("0.0.0.0:5432"), "db", 5433}}, Domains: []string{"example.com", "example.org", "localhost"},
		Hosts: map[string]bourse.AppName{"shop.example.com": "web"}, Certs: CertsConfig{Email: "ops@example.com"},
		LoadBalancers: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.1.0.0/16")},
		Trusted:       []netip.Prefix{netip.MustParsePrefix("fd00::/8")}, Data: "/var/lib/proxy", Drain: c.Drain,
	}
	same := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff(want, c, cmpopts.IgnoreFields(ProxyConfig{}, "ServerConfig"), same, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	usual := proxyConfig(t)
	if err := problemsOf(usual); err != nil || len(usual.HTTP) != 1 || usual.HTTP[0] != (WebListen{at("127.0.0.1:8080"), 0}) {
		t.Errorf("without flags: %v (%v), want HTTP at 127.0.0.1:8080", usual.HTTP, err)
	}
}

func TestProxyConfigProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"--http nowhere", "--http: address"},
		{"--http :80=0", "--http: port"},
		{"--http :80=x", "--http: port"},
		{"--https :443", "--https requires certificates"},
		{"--https :443 --acme a@b.c", "--acme requires --data"},
		{"--acme a@b.c --data d --https :443", "--acme requires --data"},
		{"--acme-ca https://ca.example/dir", "together with --acme"},
		{"--acme-ca http://ca.example/dir --acme a@b.c --data d --http :80", "use https"},
		{"--tcp :5432", "use IP:PORT=APP:PORT"},
		{"--tcp :5432=db", "use IP:PORT=APP:PORT"},
		{"--tcp :5432=Db:1", "--tcp"},
		{"--tcp :5432=db:99999", "--tcp: port"},
		{"--host shop", "use NAME=APP"},
		{"--host a/b=web", "--host"},
		{"--host a.b=-", "--host"},
		{"--domain a:b", "--domain"},
		{"--proxy-protocol-from lb", "--proxy-protocol-from"},
		{"--connections -1", "--connections -1"},
		{"--drain 2h", "--drain 2h"},
		{"--listen 10.0.0.1:4281", "the API would be open to other hosts"},
	} {
		err := problemsOf(proxyConfig(t, strings.Fields(c.args)...))
		if bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(bourse.MessageOf(err), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
	// Validate reports all problems at once.
	err := problemsOf(proxyConfig(t, "--http", "nowhere", "--tcp", "x", "--drain", "2h"))
	for _, want := range []string{"--http", "--tcp", "--drain"} {
		if !strings.Contains(bourse.MessageOf(err), want) {
			t.Errorf("error %v does not mention %s", err, want)
		}
	}
}
