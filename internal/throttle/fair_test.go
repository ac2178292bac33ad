package throttle

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestFair takes and releases holds in any order and checks these properties: The budget is never exceeded. If a
// principal is refused, no other principal that could be cut off holds more than the refused principal would have held.
// If a principal is cut off, it held the most units, and more than the taker holds afterwards, so no principal with
// less than an equal share is cut off. At the end no units are held.
func TestFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type open struct {
			hold *Hold
			by   string
			n    int64
			kept bool // whether it cannot be cut off any more
			over bool
		}
		total := rapid.Int64Range(1, 40).Draw(t, "total")
		b := NewFairBudget(total)
		var all, cut []*open
		held := func(by string) (n int64) {
			for _, o := range all {
				if o.by == by {
					n += o.n
				}
			}
			return n
		}
		// most returns the largest number of units held by a principal that can be cut off, other than except.
		most := func(except string) (n int64) {
			for _, o := range all {
				if o.by != except && o.n > 0 && !o.kept {
					n = max(n, held(o.by))
				}
			}
			return n
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			action := rapid.IntRange(0, 5).Draw(t, "action")
			if len(all) == 0 || action == 0 {
				o := &open{by: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "principal"))}
				o.hold = b.Open(o.by, func() { cut = append(cut, o) })
				all = append(all, o)
				continue
			}
			o := all[rapid.IntRange(0, len(all)-1).Draw(t, "hold")]
			switch action {
			case 1:
				o.hold.Release()
				o.n, o.over = 0, true
			case 2:
				o.hold.Keep()
				o.kept = true
			default:
				n := rapid.Int64Range(1, 5).Draw(t, "n")
				cut = nil
				ok := o.hold.Take(n, 0)
				if o.over {
					if ok || len(cut) > 0 {
						t.Fatal("a hold that was cut off took more units")
					}
					continue
				}
				then := held(o.by) + n
				for _, v := range cut {
					if k := held(v.by); k <= then || k < most(o.by) {
						t.Fatalf("a principal with %d of %d units was cut off for one with %d", k, most(o.by), then)
					}
					v.n, v.over = 0, true
				}
				if ok {
					o.n += n
				} else if most(o.by) > then {
					t.Fatalf("a principal that would hold %d was refused, while another holds %d", then, most(o.by))
				}
			}
			var sum int64
			for _, o := range all {
				sum += o.n
			}
			if sum > total || sum != b.used {
				t.Fatalf("%d of %d units are held; the budget counts %d", sum, total, b.used)
			}
		}
		for _, o := range all {
			o.hold.Release()
			o.hold.Release()
		}
		if b.used != 0 || len(b.holders) != 0 {
			t.Fatalf("%d units are held at the end, by %d", b.used, len(b.holders))
		}
	})
}

// TestMove checks that Move transfers the units of a hold to another principal.
func TestMove(t *testing.T) {
	b := NewFairBudget(10)
	cut := 0
	h := b.Open("address", func() { cut++ })
	h.Take(8, 0)
	h.Move("acme")
	other := b.Open("address", nil)
	if !other.Take(3, 0) || cut != 1 || !h.Over() {
		t.Errorf("got %d cuts, want 1, of the hold that was moved", cut)
	}
	h.Release()
	other.Release()
	if b.used != 0 || len(b.holders) != 0 {
		t.Errorf("got %d units in use at the end, want 0", b.used)
	}
}

// TestReserve checks that Take leaves the reserve free, and that Take with a smaller reserve can use it.
func TestReserve(t *testing.T) {
	b := NewFairBudget(10)
	large, small := b.Open("a", nil), b.Open("b", nil)
	if !large.Take(7, 3) || large.Take(1, 3) || !small.Take(3, 0) || small.Take(1, 0) {
		t.Error("Take must leave exactly the reserve free")
	}
}
