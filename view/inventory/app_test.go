package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

func AnyApp(t *rapid.T) bourse.App {
	a := bourse.App{
		Name: "shop", ID: anyText(t), Generation: rapid.IntRange(0, 2).Draw(t, "generation"), Org: anyText(t), Network: anyText(t),
		CreatedAt: rapid.SampledFrom([]time.Time{{}, time.Unix(1, 0).UTC(), time.Unix(1, 1).UTC(), anyTime(t)}).Draw(t, "created"),
	}
	if rapid.Bool().Draw(t, "deleted") {
		at := rapid.SampledFrom([]time.Time{{}, time.Unix(2, 0).UTC(), anyTime(t)}).Draw(t, "deleted at")
		a.DeletedAt = &at
	}
	return a
}

// TestAppReadsBackEqual checks that apps can be read back unchanged, and that wire.Order and
// App.Merge agree on the winner of two versions.
func TestAppReadsBackEqual(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	stored := func(rt *rapid.T, a bourse.App) wire.Version {
		row := AppRow(a)
		row.Clock = 1
		e, err := all.Check("w1", row)
		if err != nil {
			rt.Fatalf("the row does not fit: %v", err)
		}
		Plant(t, c, "w1", row)
		list, err := readApps(c, appSQL, "shop")
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff([]bourse.App{a}, list); diff != "" {
			rt.Fatalf("read back (-want +got):\n%s", diff)
		}
		return wire.Version{Table: row.Table, Key: row.Key, Shared: true, Columns: e.Change.Set()}
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b := AnyApp(rt), AnyApp(rt)
		x, y := stored(rt, a), stored(rt, b)
		a.Network, b.Network = "a", "b" // to identify the result; Merge ignores the field
		got := wire.Order(x, y)
		if first, second := a.Merge(b).Network, b.Merge(a).Network; first == second {
			if want := map[string]int{"a": 1, "b": -1}[first]; got != want {
				rt.Fatalf("order = %d, Merge says %d", got, want)
			}
		} else if got != 0 {
			rt.Fatalf("order = %d, to Merge they are equal", got)
		}
	})
}

func TestAppsIncludeDeletedOnes(t *testing.T) {
	c := SchemaConn(t)
	gone := time.Unix(9, 0).UTC()
	a := bourse.App{Name: "a", ID: "1", CreatedAt: time.Unix(5, 0).UTC()}
	b := bourse.App{Name: "b", ID: "2", CreatedAt: time.Unix(4, 0).UTC(), DeletedAt: &gone}
	Plant(t, c, "w1", AppRow(b), AppRow(a), AppRow(bourse.App{Name: "../x"}))
	got, err := readApps(c, appsSQL)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]bourse.App{a, b}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCanceledOrdersOfAWorker(t *testing.T) {
	c := SchemaConn(t)
	first, second := bourse.OrderID("01ARZ3NDEKTSV4RRFFQ69G5FAA"), bourse.OrderID("01ARZ3NDEKTSV4RRFFQ69G5FAB")
	Plant(t, c, "b1", CanceledRow(second, "w1"), CanceledRow(first, "w1"), CanceledRow(first, "w2"), CanceledRow("no order", "w1"))
	got, err := Canceled("w1")(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]bourse.OrderID{first, second}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
