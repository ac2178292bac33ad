package mesh

import (
	"net/netip"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// TestChanges checks that a peer's addresses are replaced only if it loses one, and that only
// laptops are removed while the view is incomplete.
func TestChanges(t *testing.T) {
	address := func(n byte) netip.Addr { return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0xaa, 15: n}) }
	peer := func(addresses ...byte) Peer {
		p := Peer{Worker: "other", Key: wgtypes.Key{1}, Address: address(1)}
		for _, n := range addresses {
			p.Machines = append(p.Machines, network.Remote{Network: "acme/", Address: address(n)})
		}
		return p
	}
	current := wgtypes.Peer{
		PublicKey: wgtypes.Key{1}, PersistentKeepaliveInterval: keepalive, LastHandshakeTime: time.Now(),
		AllowedIPs: networksOf([]netip.Addr{address(1), address(2)}),
	}
	gone := wgtypes.Peer{PublicKey: wgtypes.Key{2}}
	for name, c := range map[string]struct {
		peer    Peer
		keep    bool
		sent    int
		replace bool
	}{
		"the same":                             {peer(2), false, 0, false},
		"one more":                             {peer(2, 3), false, 1, false},
		"another one":                          {peer(3), false, 2, true},
		"one less":                             {peer(), false, 1, true},
		"one less, with an incomplete view":    {peer(), true, 0, false},
		"another one, with an incomplete view": {peer(3), true, 1, false},
	} {
		d := &Device{routes: map[wgtypes.Key]route{}}
		var removed, sent int
		var replace bool
		for _, change := range d.changesTo([]wgtypes.Peer{current, gone}, []Peer{c.peer}, c.keep, time.Now()) {
			if change.Remove {
				removed++
				continue
			}
			sent, replace = len(change.AllowedIPs), change.ReplaceAllowedIPs
		}
		if sent != c.sent || replace != c.replace || (removed == 1) == c.keep {
			t.Errorf("%s: got %d addresses, replace %t, %d removed peers; want %d addresses, replace %t", name, sent, replace, removed, c.sent, c.replace)
		}
	}
	laptop := bourse.LaptopAddress("acme/", wgtypes.Key{9})
	current.AllowedIPs = networksOf([]netip.Addr{address(1), address(2), laptop})
	gone.AllowedIPs = networksOf([]netip.Addr{laptop})
	d := &Device{routes: map[wgtypes.Key]route{}}
	for _, c := range d.changesTo([]wgtypes.Peer{current, gone}, []Peer{peer()}, true, time.Now()) {
		if c.PublicKey == gone.PublicKey && !c.Remove || c.PublicKey == current.PublicKey && (!c.ReplaceAllowedIPs || len(c.AllowedIPs) != 2) {
			t.Errorf("with an incomplete view, a laptop is not removed: %+v", c)
		}
	}
	d = &Device{routes: map[wgtypes.Key]route{}}
	if got := d.changesTo(nil, []Peer{peer(2)}, true, time.Now()); len(got) != 1 || len(got[0].AllowedIPs) != 2 {
		t.Errorf("changes for a new peer: %+v", got)
	}
}

// TestOneMeshPerHost checks that only one process on a host can hold the mesh's lock.
func TestOneMeshPerHost(t *testing.T) {
	dir := t.TempDir()
	first, err := lockHost(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockHost(dir); err == nil {
		t.Error("two processes hold the lock")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := lockHost(dir)
	if err != nil {
		t.Fatalf("after the first process released the lock: %v", err)
	}
	_ = second.Close()
}
