package inventory_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// running runs a view's writer until the test ends, and then closes the view.
func running(t testing.TB, v *view.View) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- v.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := v.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func opened(t testing.TB, cfg view.Config) *view.View {
	t.Helper()
	v, err := view.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	running(t, v)
	return v
}

// TestPublishedMachinesReadBack publishes a machine that changes repeatedly, and reads it back.
// Unchanged rows must not be published again.
func TestPublishedMachinesReadBack(t *testing.T) {
	v := opened(t, view.Config{Path: filepath.Join(t.TempDir(), "view.db"), Cluster: "c", Site: "w1"})
	rapid.Check(t, func(rt *rapid.T) {
		m := inventory.AnyMachine(rt)
		m.ID = "00000000000001"
		if _, err := v.Publish(t.Context(), inventory.MachineRow(&m)); err != nil {
			rt.Fatal(err)
		}
		got, err := view.Query(t.Context(), v, inventory.Machine(m.ID))
		if err != nil || got == nil {
			rt.Fatalf("read: %v, %v", got, err)
		}
		if diff := cmp.Diff(inventory.Visible(m), got.Machine, inventory.ByValue); diff != "" {
			rt.Fatalf("read back (-want +got):\n%s", diff)
		}
		if at, err := v.Publish(t.Context(), inventory.MachineRow(&m)); err != nil || at != (wire.Position{}) {
			rt.Fatalf("the same machine again: %v, %v", at, err)
		}
	})
}

// TestPublishedAppsMergeLikeAppMerge checks that if several versions of an app are published,
// the view contains the result of App.Merge.
func TestPublishedAppsMergeLikeAppMerge(t *testing.T) {
	v := opened(t, view.Config{Cluster: "c", Site: "w1"})
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		name := bourse.AppName(fmt.Sprint("shop-", n))
		draw := func() bourse.App { a := inventory.AnyApp(rt); a.Name = name; return a }
		want := draw()
		if _, err := v.Publish(t.Context(), inventory.AppRow(want)); err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 4).Draw(rt, "copies") {
			b := draw()
			if _, err := v.Publish(t.Context(), inventory.AppRow(b)); err != nil {
				rt.Fatal(err)
			}
			want = want.Merge(b) // retains the first app if Merge considers both equal
		}
		got, err := view.Query(t.Context(), v, inventory.App(name))
		if err != nil || got == nil {
			rt.Fatalf("read: %v, %v", got, err)
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			rt.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestTypedReadersOfAView(t *testing.T) {
	v := opened(t, view.Config{Cluster: "c", Site: "w1"})
	ctx := t.Context()
	order := bourse.OrderID("01ARZ3NDEKTSV4RRFFQ69G5FAA")
	if _, err := v.Publish(ctx,
		inventory.WorkerRow(&bourse.Facts{Worker: "w1", Region: "gru", Tag: 1}, false),
		inventory.AMachine(1, "shop", "gru", 1), inventory.AMachine(2, "shop", "gru", 2), inventory.AMachine(3, "blog", "gru", 3),
		inventory.AppRow(bourse.App{Name: "shop", ID: "1"}), inventory.CanceledRow(order, "w2"),
	); err != nil {
		t.Fatal(err)
	}
	counts, err := view.Query(ctx, v, inventory.CountMachines())
	if diff := cmp.Diff(map[bourse.AppRef]int{{Name: "shop"}: 2, {Name: "blog"}: 1}, counts); diff != "" || err != nil {
		t.Errorf("counts: %v\n%s", err, diff)
	}
	if workers, err := view.Query(ctx, v, inventory.Workers()); err != nil || len(workers) != 1 || workers[0].ID != "w1" {
		t.Errorf("workers: %+v, %v", workers, err)
	}
	if apps, err := view.Query(ctx, v, inventory.Apps()); err != nil || len(apps) != 1 || apps[0].Name != "shop" {
		t.Errorf("apps: %+v, %v", apps, err)
	}
	if list, err := view.Query(ctx, v, inventory.Canceled("w2")); err != nil || len(list) != 1 || list[0] != order {
		t.Errorf("canceled: %v, %v", list, err)
	}
	for _, id := range []bourse.MachineID{"", "00000000000009"} {
		if m, err := view.Query(ctx, v, inventory.Machine(id)); m != nil || err != nil {
			t.Errorf("machine %q: %v, %v", id, m, err)
		}
	}
	if app, err := view.Query(ctx, v, inventory.App("none")); app != nil || err != nil {
		t.Errorf("app none: %v, %v", app, err)
	}
	if _, err := v.Publish(ctx, wire.DeletedRow(wire.TableMachines, "00000000000001"), wire.DeletedRow(wire.TableCanceled, string(order)+"/w2")); err != nil {
		t.Fatal(err)
	}
	if list, err := view.Query(ctx, v, inventory.Machines(inventory.Filter{App: "shop"})); err != nil || inventory.IDs(list) != "2@w1" {
		t.Errorf("after one machine was deleted: %q, %v", inventory.IDs(list), err)
	}
	if list, err := view.Query(ctx, v, inventory.Canceled("w2")); err != nil || len(list) != 0 {
		t.Errorf("after its row was deleted: %v, %v", list, err)
	}
}

func TestReadersEndWithTheirContext(t *testing.T) {
	v := opened(t, view.Config{Cluster: "c", Site: "w1"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := view.Query(ctx, v, inventory.Machines(inventory.Filter{})); bourse.CodeOf(err) != bourse.CodeCanceled {
		t.Errorf("code %q of %v, want canceled", bourse.CodeOf(err), err)
	}
	past, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := view.Query(past, v, inventory.Workers()); bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("code %q of %v, want timeout", bourse.CodeOf(err), err)
	}
}
