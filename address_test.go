package bourse_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// A machine's address tells network, worker and machine, and no two machines
// of a network share one.
func TestPrivateAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		network := rapid.String().Draw(t, "network")
		a, b := bourse.NewMachineID(7), bourse.NewMachineID(8)
		one, other := bourse.PrivateAddress(network, a), bourse.PrivateAddress(network, b)
		prefix := bourse.NetworkPrefix(network)
		if one == other || !prefix.Contains(one) || !prefix.Contains(other) || one != bourse.PrivateAddress(network, a) {
			t.Errorf("%s and %s in %s", one, other, prefix)
		}
	})
	if got := bourse.PrivateAddress("org:a", "00000700000001").String(); got != "fdaa:4629:5272:0:7:0:1:2" {
		t.Errorf("address %s: who knows the old ones finds nobody", got)
	}
	if bourse.PrivateAddress("a", "nonsense").IsValid() {
		t.Error("an address of no machine")
	}
}
