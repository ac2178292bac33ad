package bourse_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

const aKey = bourse.ReservationKey("01J00000000000000000000000")

// TestReservationIDRoutesToItsWorkers checks that the ID of a reservation leads to all workers that
// have holds for it.
func TestReservationIDRoutesToItsWorkers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := bourse.NewReservationKey()
		var tags []bourse.WorkerTag
		for _, n := range rapid.SliceOfN(rapid.Uint32Range(1, 1<<24-1), 1, bourse.MaxReservedOrders).Draw(t, "tags") {
			tags = append(tags, bourse.WorkerTag(n))
		}
		id := key.At(tags)
		if err := id.Validate(); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		slices.Sort(tags)
		if got := id.Workers(); id.Key() != key || !slices.Equal(got, slices.Compact(tags)) {
			t.Fatalf("%s: got key %s and tags %v, want %s and %v", id, id.Key(), got, key, tags)
		}
	})
	for _, id := range []bourse.ReservationID{
		"", "-", "-a1b2c3", bourse.ReservationID(aKey), bourse.ReservationID(aKey) + "-", bourse.ReservationID(aKey) + "-000000",
		bourse.ReservationID(aKey) + "-a1b2c", bourse.ReservationID(aKey) + "-A1B2C3", bourse.ReservationID(aKey) + "-a1b2c3.a1b2c3",
		bourse.ReservationID(aKey) + "-b1b2c3.a1b2c3", bourse.ReservationID(aKey) + "-a1b2c3.", bourse.ReservationID(aKey) + "-1a1b2c3",
		bourse.ReservationID(strings.ToLower("01ARZ3NDEKTSV4RRFFQ69G5FAV")) + "-a1b2c3", "../../etc-a1b2c3",
		bourse.ReservationID(aKey) + "-" + bourse.ReservationID(strings.Repeat("a1b2c3.", 100_000)),
	} {
		codeIs(t, id.Validate(), bourse.CodeInvalid)
		if id.Key() != "" || id.Workers() != nil {
			t.Errorf("%.60q: got key %q and tags %v, want none", id, id.Key(), id.Workers())
		}
	}
}

// TestReservationOrdersAreDerived checks that the orders of a reservation have the same IDs on
// every broker, and that none of these IDs belongs to another reservation. This includes the ID
// that [bourse.ReservationKey.All] returns.
func TestReservationOrdersAreDerived(t *testing.T) {
	seen := map[bourse.OrderID]bool{bourse.OrderID(aKey): true}
	for _, key := range []bourse.ReservationKey{aKey, "01J00000000000000000000001"} {
		for n := range bourse.MaxReservedOrders {
			id := key.Order(n)
			if id != key.Order(n) || id.Validate() != nil || seen[id] {
				t.Fatalf("order %d of %s: got ID %s, seen before: %t, error: %v", n, key, id, seen[id], id.Validate())
			}
			seen[id] = true
		}
		if all := key.All(); all.Validate() != nil || seen[all] {
			t.Errorf("All of %s: got %s, want a new valid ID", key, all)
		}
	}
}

func TestOrdersThatReserve(t *testing.T) {
	hold := func(change func(*bourse.Order)) bourse.Order {
		o := order(t)
		o.Hold = &bourse.HoldOrder{Reservation: aKey, TTL: bourse.Duration(time.Minute)}
		o.Config.Image, o.Config.Init = "", bourse.Init{}
		change(&o)
		return o
	}
	from := func(change func(*bourse.Order)) bourse.Order {
		o := order(t)
		o.Reservation = aKey.At([]bourse.WorkerTag{7})
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		order bourse.Order
		ok    bool
	}{
		"a size alone":           {hold(func(*bourse.Order) {}), true},
		"an image":               {hold(func(o *bourse.Order) { o.Config.Image = "nginx" }), true},
		"a bad image":            {hold(func(o *bourse.Order) { o.Config.Image = "a b" }), false},
		"no guest":               {hold(func(o *bourse.Order) { o.Config.Guest = nil }), false},
		"a negative guest":       {hold(func(o *bourse.Order) { o.Config.Guest.CPUs = -1 }), false},
		"no key":                 {hold(func(o *bourse.Order) { o.Hold.Reservation = "" }), false},
		"a negative index":       {hold(func(o *bourse.Order) { o.Hold.Index = -1 }), false},
		"an index past the most": {hold(func(o *bourse.Order) { o.Hold.Index = bourse.MaxReservedOrders }), false},
		"no time":                {hold(func(o *bourse.Order) { o.Hold.TTL = 0 }), false},
		"too short a time":       {hold(func(o *bourse.Order) { o.Hold.TTL = bourse.Duration(bourse.MinHold - 1) }), false},
		"the longest time":       {hold(func(o *bourse.Order) { o.Hold.TTL = bourse.Duration(bourse.MaxHold) }), true},
		"too long a time":        {hold(func(o *bourse.Order) { o.Hold.TTL = bourse.Duration(bourse.MaxHold + 1) }), false},
		"a volume":               {hold(func(o *bourse.Order) { o.Volume = &bourse.VolumeOrder{Name: "data", SizeGB: 1} }), false},
		"a mount":                {hold(func(o *bourse.Order) { o.Config.Mounts = []bourse.Mount{{Volume: "vol_x", Path: "/d"}} }), false},
		"from a reservation":     {from(func(*bourse.Order) {}), true},
		"from nonsense":          {from(func(o *bourse.Order) { o.Reservation = "x" }), false},
		"from one, held":         {from(func(o *bourse.Order) { o.Hold = &bourse.HoldOrder{Reservation: aKey} }), false},
		"from one, not launched": {from(func(o *bourse.Order) { o.SkipLaunch = true }), false},
		"from one, raced":        {from(func(o *bourse.Order) { o.Race = 2 }), false},
		"from one, for a volume": {from(func(o *bourse.Order) { o.Volume = &bourse.VolumeOrder{Name: "data", SizeGB: 1} }), false},
		"from one, raced by one": {from(func(o *bourse.Order) { o.Race = 1 }), true},
		"from one, a bad mount":  {from(func(o *bourse.Order) { o.Config.Mounts = []bourse.Mount{{Volume: "nonsense", Path: "/d"}} }), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.order.Validate(); (err == nil) != c.ok || err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("got error %v, want valid: %t", err, c.ok)
			}
		})
	}
}

// TestNormalizeHeld checks that normalizing a hold's config, which needs no program, does not add
// one.
func TestNormalizeHeld(t *testing.T) {
	c := bourse.Config{Size: "shared-cpu-2x"}
	if err := c.NormalizeHeld(); err != nil || c.Image != "" || len(c.Init.Command()) > 0 || c.Size != "" || c.Guest.CPUs != 2 || c.Guest.MemoryMB != 512 {
		t.Errorf("normalized to %+v: %v", c, err)
	}
	c = bourse.Config{Requirements: bourse.Requirements{"a/b": {Count: 1}}}
	codeIs(t, c.NormalizeHeld(), bourse.CodeInvalid)
}

// FuzzReservationID checks that no text causes a panic, and that each ID has only one spelling.
func FuzzReservationID(f *testing.F) {
	f.Add(string(aKey.At([]bourse.WorkerTag{1, 0xa1b2c3})))
	f.Add(string(aKey) + "-a1b2c3.000000")
	f.Add("-.-")
	f.Fuzz(func(t *testing.T, text string) {
		id := bourse.ReservationID(text)
		if err := id.Validate(); err != nil {
			codeIs(t, err, bourse.CodeInvalid)
			return
		}
		tags := id.Workers()
		if len(tags) == 0 || len(tags) > bourse.MaxReservedOrders || id.Key().At(tags) != id {
			t.Fatalf("%q: got key %s and tags %v, which do not form the same ID", text, id.Key(), tags)
		}
	})
}
