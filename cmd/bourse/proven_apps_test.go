package main

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
)

// brokersView is the view of a broker, in memory.
func brokersView(t *testing.T, site bourse.WorkerID) *view.View {
	t.Helper()
	v, err := view.Open(view.Config{Site: site, Cluster: "test", Role: bourse.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// What a worker reports of apps is worth what a broker has signed of it: a broker
// with an empty view takes from the copy what its proof says and not what the
// copy says, and nothing at all without one. So a worker gives no app away.
func TestAWorkersCopyOfAnAppIsWorthItsProof(t *testing.T) {
	born := time.Now().UTC().Add(-time.Hour).Truncate(0)
	shop := bourse.App{Name: "shop", ID: "x", Org: "acme", CreatedAt: born}
	former := brokersView(t, "b1")
	if _, err := former.Publish(t.Context(), inventory.AppRow(shop)); err != nil {
		t.Fatal(err)
	}
	kept, err := former.Prove(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	deletedAt := born.Add(time.Minute)
	with := func(change func(*bourse.App)) bourse.App {
		a := kept
		change(&a)
		return a
	}
	for name, x := range map[string]struct {
		reported []bourse.App
		want     []bourse.App
	}{
		"as it was kept":             {[]bourse.App{kept}, []bourse.App{shop}},
		"of another organization":    {[]bourse.App{with(func(a *bourse.App) { a.Org = "thief" })}, []bourse.App{shop}},
		"made earlier, by others":    {[]bourse.App{with(func(a *bourse.App) { a.ID, a.Org, a.CreatedAt = "y", "thief", born.Add(-time.Hour) })}, []bourse.App{shop}},
		"deleted":                    {[]bourse.App{with(func(a *bourse.App) { a.DeletedAt = &deletedAt })}, []bourse.App{shop}},
		"without its proof":          {[]bourse.App{with(func(a *bourse.App) { a.Proof = nil })}, []bourse.App{}},
		"one that has no proof, too": {[]bourse.App{{Name: "bank", ID: "z", Org: "thief", CreatedAt: born}, kept}, []bourse.App{shop}},
		"with the proof of another":  {[]bourse.App{with(func(a *bourse.App) { a.Name = "bank" })}, []bourse.App{}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &replica{View: brokersView(t, "b2"), certified: true}
			for range 2 { // once from nothing, once with what the first time has brought
				got, err := r.believe(t.Context(), x.reported)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(x.want, got, cmpopts.IgnoreFields(bourse.App{}, "Proof")); d != "" {
					t.Fatalf("apps (-want +got):\n%s", d)
				}
			}
		})
	}
}

// A proof that is none is an error, not an app.
func TestAWorkersProofThatIsNone(t *testing.T) {
	r := &replica{View: brokersView(t, "b2"), certified: true}
	got, err := r.believe(t.Context(), []bourse.App{{Name: "shop", ID: "x", Org: "thief", Proof: []byte("no proof")}})
	if bourse.CodeOf(err) != bourse.CodeInvalid || len(got) != 0 {
		t.Errorf("got %+v, %v, want %s", got, err, bourse.CodeInvalid)
	}
	if _, ok, err := r.App(t.Context(), "shop"); ok || err != nil {
		t.Errorf("the app is there (%t), %v", ok, err)
	}
}
