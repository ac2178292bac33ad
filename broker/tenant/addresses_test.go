package tenant_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/tenant"
)

// TestAddressOfApp checks that an app's address is unique, lies in the app's network, and differs
// from the addresses of machines.
func TestAddressOfApp(t *testing.T) {
	shop := bourse.App{Name: "shop", ID: bourse.NewAppID(), Org: "acme"}
	ip := tenant.Of(&shop)
	if again := tenant.Of(&bourse.App{ID: shop.ID, Org: "acme"}); ip != again {
		t.Errorf("%s, then %s", ip, again)
	}
	if !bourse.NetworkPrefix(shop.PrivateNetwork()).Contains(ip) {
		t.Errorf("%s is not in the app's network", ip)
	}
	next := bourse.App{Name: "shop", ID: bourse.NewAppID(), Org: "acme"} // an app that has the same name later
	if tenant.Of(&next) == ip {
		t.Error("a later app with the same name has the same address")
	}
	if m := bourse.PrivateAddress(shop.PrivateNetwork(), bourse.NewMachineID(0xabcdef)); m.As16()[15] == ip.As16()[15] {
		t.Errorf("%s may be a machine's address, such as %s", ip, m)
	}
}
