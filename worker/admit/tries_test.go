package admit

import (
	"fmt"
	"testing"

	"github.com/bourse-dev/bourse"
)

// Tries remembers a bounded number of orders, and always the latest ones.
func TestTriesAreBounded(t *testing.T) {
	var x Tries
	for i := range 5 * maxTries {
		x.Asked(&bourse.Order{ID: bourse.OrderID(fmt.Sprint(i)), Options: bourse.Options{Try: "a"}})
	}
	if n := len(x.last) + len(x.old); n > 2*maxTries {
		t.Errorf("%d orders are remembered, want at most %d", n, 2*maxTries)
	}
	late := bourse.Order{ID: bourse.OrderID(fmt.Sprint(5*maxTries - maxTries)), Options: bourse.Options{Try: "b"}}
	if x.refuse(&late) == nil {
		t.Error("the attempt of a recent order was discarded")
	}
}
