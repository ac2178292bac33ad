package publish

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func TestAnOutboxIsBounded(t *testing.T) {
	o := newOutbox()
	for i := range maxNoted {
		for range 3 { // several changes to one machine are noted once
			o.add(bourse.MachineID(fmt.Sprint(i)), false)
		}
	}
	p := o.take()
	if len(p.ids) != maxNoted || p.all {
		t.Errorf("%d ids, all %t; want %d ids", len(p.ids), p.all, maxNoted)
	}
	o.add("one more", true)
	o.putBack(p)
	o.add("and one", false)
	if p = o.take(); !p.all || len(p.ids) != 0 || !p.unsure {
		t.Errorf("%d ids, all %t, unsure %t; want all, no ids, and still unsure", len(p.ids), p.all, p.unsure)
	}
	if p = o.take(); p.all || p.unsure || len(p.ids) != 0 {
		t.Errorf("an empty outbox contains %+v", p)
	}
}

// putBack merges the changes, and the channels of waiting callers, with those that were added in the meantime.
func TestAnOutboxLosesNothing(t *testing.T) {
	o := newOutbox()
	o.add("a", false)
	first := o.await()
	p := o.take()
	o.add("b", false)
	second := o.await()
	o.putBack(p)
	select {
	case <-o.wake:
	default:
		t.Error("putBack did not wake the publisher")
	}
	if p = o.take(); len(p.ids) != 2 || len(p.waits) != 2 {
		t.Errorf("%d ids and %d waiting callers, want a and b, and both callers", len(p.ids), len(p.waits))
	}
	for _, done := range []<-chan struct{}{first, second} {
		select {
		case <-done:
			t.Error("a waiting caller was notified before anything was published")
		default:
		}
	}
}

// Halving an update repeatedly yields each of its values exactly once.
func TestHalves(t *testing.T) {
	u := Update{
		Facts: &bourse.Facts{Worker: "w1"}, Leaving: true,
		Machines: []bourse.Machine{{ID: "m1"}, {ID: "m2"}, {ID: "m3"}},
		Gone:     []bourse.MachineID{"m4", "m5"}, Apps: []bourse.App{{Name: "a1"}, {Name: "a2"}},
	}
	var got []string
	var cut func(u Update)
	cut = func(u Update) {
		a, b, ok := u.split()
		if !ok {
			if n := len(u.Machines) + len(u.Gone) + len(u.Apps); n > 1 || n == 1 && u.Facts != nil || u.empty() {
				t.Fatalf("%+v does not contain exactly one value", u)
			}
			got = append(got, u.name())
			if (u.Facts != nil) != u.Leaving {
				t.Errorf("%s: leaving %t", u.name(), u.Leaving)
			}
			return
		}
		cut(a)
		cut(b)
	}
	cut(u)
	slices.Sort(got)
	want := []string{`app "a1"`, `app "a2"`, "facts", "machine m1", "machine m2", "machine m3", "machine m4", "machine m5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}
