package tenant_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/tenant"
)

// An app's address is its own, in its network, and no machine's.
func TestAnAddressFollowsFromTheApp(t *testing.T) {
	shop := bourse.App{Name: "shop", ID: bourse.NewAppID(), Org: "acme"}
	ip := tenant.Of(&shop)
	if again := tenant.Of(&bourse.App{ID: shop.ID, Org: "acme"}); ip != again {
		t.Errorf("%s, then %s", ip, again)
	}
	if !bourse.NetworkPrefix(shop.PrivateNetwork()).Contains(ip) {
		t.Errorf("%s is not in the app's network", ip)
	}
	next := bourse.App{Name: "shop", ID: bourse.NewAppID(), Org: "acme"} // of the same name, made later
	if tenant.Of(&next) == ip {
		t.Error("a later app of the name has the address of the former one")
	}
	if m := bourse.PrivateAddress(shop.PrivateNetwork(), bourse.NewMachineID(0xabcdef)); m.As16()[15] == ip.As16()[15] {
		t.Errorf("%s may be a machine's: one has %s", ip, m)
	}
}
