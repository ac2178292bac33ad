package nats_test

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse/fabric/fabrictest"
)

// TestManyCalls makes calls of which many are canceled, some break off and some
// are refused: what each caller receives agrees with what the handler saw, and
// in the end none is left in any table.
func TestManyCalls(t *testing.T) {
	n := newNetwork(t, embedded(t), false, nil)
	s := fabrictest.NewSeen()
	w := n.Serve("w1", s)
	n.links[0].TakesAtOnce(24)
	fabrictest.SendMany(t, n.fabric, w.Member, s, 100, true)
	for end := time.Now().Add(patience); ; {
		mine, _ := n.fabric.Link.Calls()
		_, theirs := n.links[0].Calls()
		if mine+theirs == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls are left, %d are served", mine, theirs)
		}
	}
	if got := n.fabric.Link.Counts(); got.Strange > 0 {
		t.Errorf("counted %+v", got)
	}
}
