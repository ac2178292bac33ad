package view

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// TestMergeOnlyProofs passes an app's proof, and forged variants of it, to MergeProofs. Only the
// app that a broker has signed may be restored.
func TestMergeOnlyProofs(t *testing.T) {
	broker := startMember(t, Config{Site: "b1"})
	shop := bourse.App{Name: "shop", ID: "x", Org: "acme", CreatedAt: time.Now().UTC()}
	broker.publish(inventory.AppRow(shop))
	app, err := broker.Proof(t.Context(), "shop")
	if err != nil || len(app.Proof) == 0 {
		t.Fatalf("%+v, %v", app, err)
	}
	m := startMember(t, Config{Site: "w1", Role: bourse.RoleWorker})
	var w wire.ProofBody
	if err := wire.ReadBody(app.Proof, &w); err != nil {
		t.Fatal(err)
	}
	row, err := wire.DecodeRow(w.Row)
	if err != nil {
		t.Fatal(err)
	}
	worker := sealOf(newTestKey(t, bourse.RoleWorker))
	for name, change := range map[string]func(w *wire.ProofBody, row *wire.RowBody){
		"of another organization": func(_ *wire.ProofBody, row *wire.RowBody) { row.Columns["org"] = "thief" },
		"born earlier":            func(_ *wire.ProofBody, row *wire.RowBody) { row.Columns["created_at"] = int64(1) },
		"signed by a worker": func(w *wire.ProofBody, row *wire.RowBody) {
			w.Birth, row.Sig = worker.Birth, signRow(t, worker, row)
		},
		"without a signature": func(_ *wire.ProofBody, row *wire.RowBody) { row.Sig = nil },
		"without a birth":     func(w *wire.ProofBody, _ *wire.RowBody) { w.Birth = nil },
	} {
		forged, bad := w, row
		bad.Columns = maps.Clone(row.Columns)
		change(&forged, &bad)
		if forged.Row, err = wire.EncodeRow(bad); err != nil {
			t.Fatal(err)
		}
		b, err := wire.EncodeBody(forged)
		if err != nil {
			t.Fatal(err)
		}
		before := m.ForgedCount()
		if err := m.MergeProofs(t.Context(), b); err != nil || m.ForgedCount() == before || len(m.dump()) != 0 {
			t.Errorf("%s: error %v, rows %v", name, err, m.dump())
		}
	}
	if err := m.MergeProofs(t.Context(), []byte("no proof")); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("no proof: %v, want %s", err, bourse.CodeInvalid)
	}
	if err := m.MergeProofs(t.Context(), app.Proof, app.Proof); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(broker.dump(), m.dump()); d != "" {
		t.Errorf("rows (-broker +worker):\n%s", d)
	}
	if again, err := m.Proof(t.Context(), "shop"); err != nil || !bytes.Equal(again.Proof, app.Proof) {
		t.Errorf("the worker's proof of the row differs: %v", err)
	}
	m.sound()
}

// FuzzMergeProofs passes arbitrary proofs to MergeProofs.
func FuzzMergeProofs(f *testing.F) {
	broker := startMember(f, Config{Site: "b1"})
	broker.publish(inventory.AppRow(bourse.App{Name: "shop", ID: "x", Org: "acme"}))
	app, err := broker.Proof(f.Context(), "shop")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(app.Proof)
	f.Add([]byte{0xa0})
	m := startMember(f, Config{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := m.MergeProofs(t.Context(), b); err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Fatal(err)
		}
		if err := m.verify(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMergeAppProofsUsesOnlyProofs passes altered copies of an app to MergeAppProofs. It must return
// the app as its proof describes it, and no app without a proof. Otherwise a worker could assign
// an app to another organization.
func TestMergeAppProofsUsesOnlyProofs(t *testing.T) {
	born := time.Now().UTC().Add(-time.Hour).Truncate(0)
	shop := bourse.App{Name: "shop", ID: "x", Org: "acme", CreatedAt: born}
	former := startMember(t, Config{Site: "b1"})
	former.publish(inventory.AppRow(shop))
	kept, err := former.Proof(t.Context(), "shop")
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
		"unchanged copy":                           {[]bourse.App{kept}, []bourse.App{shop}},
		"of another organization":                  {[]bourse.App{with(func(a *bourse.App) { a.Org = "thief" })}, []bourse.App{shop}},
		"created earlier, by another organization": {[]bourse.App{with(func(a *bourse.App) { a.ID, a.Org, a.CreatedAt = "y", "thief", born.Add(-time.Hour) })}, []bourse.App{shop}},
		"deleted":                              {[]bourse.App{with(func(a *bourse.App) { a.DeletedAt = &deletedAt })}, []bourse.App{shop}},
		"without its proof":                    {[]bourse.App{with(func(a *bourse.App) { a.Proof = nil })}, []bourse.App{}},
		"together with an app without a proof": {[]bourse.App{{Name: "bank", ID: "z", Org: "thief", CreatedAt: born}, kept}, []bourse.App{shop}},
		"with another app's proof":             {[]bourse.App{with(func(a *bourse.App) { a.Name = "bank" })}, []bourse.App{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := startMember(t, Config{Site: "b2"})
			for range 2 { // first with an empty view, then with the rows that the first call has merged
				got, err := m.MergeAppProofs(t.Context(), x.reported)
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

// TestMergeAppProofsRejectsMalformedProof checks that a malformed proof is an error and creates no
// app.
func TestMergeAppProofsRejectsMalformedProof(t *testing.T) {
	m := startMember(t, Config{Site: "b2"})
	got, err := m.MergeAppProofs(t.Context(), []bourse.App{{Name: "shop", ID: "x", Org: "thief", Proof: []byte("no proof")}})
	if bourse.CodeOf(err) != bourse.CodeInvalid || len(got) != 0 {
		t.Errorf("got %+v, %v, want %s", got, err, bourse.CodeInvalid)
	}
	if app, err := m.App(t.Context(), "shop"); app != nil || err != nil {
		t.Errorf("the app exists: %+v, %v", app, err)
	}
}
