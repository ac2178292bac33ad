package network

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestMarks(t *testing.T) {
	a, b := markOf("/var/lib/bourse"), markOf("/var/lib/bourse2")
	if a == b || a != markOf("/var/lib/bourse/") {
		t.Errorf("%s, %s, %s", a, b, markOf("/var/lib/bourse/"))
	}
	if a.resolver() == b.resolver() || !private.Contains(a.resolver()) {
		t.Errorf("resolver addresses %s and %s must differ and be private", a.resolver(), b.resolver())
	}
	if name := linkName("0123456789abcd"); len(name) != 15 {
		t.Errorf("%q has %d characters, want 15", name, len(name))
	}
	if _, ok := machineOf(pooledName()); ok {
		t.Error("a spare's link name is also a machine's")
	}
}

func FuzzParseAlias(f *testing.F) {
	f.Add("bourse 01234567")
	f.Add("bourse 01234567 198.18.0.1 02:00:00:00:00:01")
	f.Add("bourse 01234567 ::1 02:00:00:00:00:01")
	f.Add("eth0 uplink")
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := parseAlias(s)
		if !ok {
			return
		}
		again, ok := parseAlias(a.String())
		if !ok || !cmp.Equal(again.String(), a.String()) {
			t.Errorf("%q is parsed as %+v, whose text is parsed as %+v", s, a, again)
		}
	})
}

func TestAlias(t *testing.T) {
	a := alias{mark: "01234567", ipv4: netip.MustParseAddr("198.18.0.1"), mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	if got, ok := parseAlias(a.String()); !ok || got.ipv4 != a.ipv4 || got.mac.String() != a.mac.String() || got.mark != a.mark {
		t.Errorf("%+v, %t", got, ok)
	}
	for _, bad := range []string{"", "bourse", "bourse a b", "bourse a 1.2.3 02:00:00:00:00:01", "bourse a 1.2.3.4 x", "other a"} {
		if got, ok := parseAlias(bad); ok {
			t.Errorf("%q is parsed as %+v, want an error", bad, got)
		}
	}
}

func TestGroups(t *testing.T) {
	g := group("one/", nil)
	if g == 0 || g != group("one/", map[uint32]string{g: "one/"}) {
		t.Errorf("group %d is 0, or changes once it is in use", g)
	}
	if other := group("one/", map[uint32]string{g: "two/", g + 1: "org:three"}); other != g+2 {
		t.Errorf("got group %d, want the next free one after %d", other, g+1)
	}
}

func TestCandidates(t *testing.T) {
	in := netip.MustParsePrefix("198.18.7.0/28")
	got := slices.Collect(candidates(in, "00000100000001"))
	if first := slices.Collect(candidates(in, "00000100000001"))[0]; first != got[0] {
		t.Errorf("the first candidate changes from %s to %s", got[0], first)
	}
	slices.SortFunc(got, netip.Addr.Compare)
	if got = slices.Compact(got); len(got) != 14 || got[0].String() != "198.18.7.1" || got[13].String() != "198.18.7.14" {
		t.Errorf("%v", got)
	}
	for _, none := range []string{"198.18.7.0/31", "fd00::/64"} {
		if got := slices.Collect(candidates(netip.MustParsePrefix(none), "00000100000001")); len(got) != 0 {
			t.Errorf("%s: %v", none, got)
		}
	}
	begin := map[netip.Addr]int{}
	for range 200 {
		for a := range candidates(DefaultIPv4, bourse.NewMachineID(1)) {
			begin[a]++
			break
		}
	}
	if len(begin) < 190 {
		t.Errorf("200 machines have only %d different first candidates", len(begin))
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("back", "vm", "00000100000001", "", "")
	f.Add("app", "_metadata", "kv", "key", "value")
	f.Add("_apps", "", "", "", "")
	f.Fuzz(func(t *testing.T, a, b, c, d, e string) {
		labels := slices.DeleteFunc([]string{e, d, c, b, a}, func(s string) bool { return s == "" })
		n := parseName(labels)
		switch n.kind {
		case nameUnknown, nameApps, nameInstances:
		case nameEmpty:
			if n.app == "" && len(labels) > 0 {
				t.Errorf("%q is parsed as an empty name that does not belong to an app", labels)
			}
		default:
			if n.app.Validate() != nil {
				t.Errorf("%q: %+v", labels, n)
			}
		}
	})
}
