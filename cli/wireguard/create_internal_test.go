package wireguard

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestConfig checks that the configuration has the format of wg-quick, and that no value in a reply can add a line to it,
// such as a command.
func TestConfig(t *testing.T) {
	reply := func() *machinesapi.WireGuardPeer {
		return &machinesapi.WireGuardPeer{
			Name: "laptop", Org: "acme", Network: "net", Worker: "w1", Address: netip.MustParseAddr("fdaa:1:2:3::4"), ExpiresAt: time.Unix(0, 0),
			Settings: &machinesapi.WireGuardSettings{
				PublicKey: make([]byte, 32), Endpoint: netip.MustParseAddrPort("192.0.2.1:51820"), DNS: netip.MustParseAddr("fdaa::3"), MTU: 1280,
				AllowedIPs: []netip.Prefix{netip.MustParsePrefix("fdaa:1:2::/48"), netip.MustParsePrefix("fdaa::3/128")},
			},
		}
	}
	got, err := configOf(reply(), make([]byte, 32))
	key := strings.Repeat("A", 43) + "="
	want := `[Interface]
PrivateKey = ` + key + `
Address = fdaa:1:2:3::4/128
DNS = fdaa::3, internal
MTU = 1280

[Peer]
PublicKey = ` + key + `
Endpoint = 192.0.2.1:51820
AllowedIPs = fdaa:1:2::/48, fdaa::3/128
PersistentKeepalive = 25
`
	if err != nil || !strings.HasPrefix(got, "# laptop in network acme/net, through worker w1, until ") || !strings.HasSuffix(got, "\n"+want) {
		t.Errorf("got %v:\n%s", err, got)
	}
	const evil = "x\nPostUp = reboot"
	for name, change := range map[string]func(*machinesapi.WireGuardPeer){
		"name":    func(p *machinesapi.WireGuardPeer) { p.Name = evil },
		"network": func(p *machinesapi.WireGuardPeer) { p.Network = evil },
		"worker":  func(p *machinesapi.WireGuardPeer) { p.Worker = evil },
		"address": func(p *machinesapi.WireGuardPeer) { p.Address = netip.MustParseAddr("fe80::1").WithZone(evil) },
		"DNS":     func(p *machinesapi.WireGuardPeer) { p.Settings.DNS = netip.MustParseAddr("fe80::1").WithZone(evil) },
		"endpoint": func(p *machinesapi.WireGuardPeer) {
			p.Settings.Endpoint = netip.AddrPortFrom(netip.MustParseAddr("fe80::1").WithZone(evil), 1)
		},
		"return": func(p *machinesapi.WireGuardPeer) { p.Worker = "x\rPostUp = reboot" },
	} {
		p := reply()
		change(p)
		got, err := configOf(p, make([]byte, 32))
		if strings.Contains(got, "\nPostUp") || strings.Contains(got, "\rPostUp") {
			t.Errorf("%s: %v:\n%s", name, err, got)
		}
	}
	if _, err := find([]machinesapi.WireGuardPeer{{ID: "1", Name: "a"}, {ID: "2", Name: "a"}}, "a"); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("an ambiguous name: %v", err)
	}
}
