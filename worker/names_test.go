package worker

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
)

// Names are answered from the worker's own records, without a view. The default app
// exists from the start, and a machine as soon as it is recorded. An app of another
// organization keeps its own network, and machines of other workers are not included.
func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		names := h.Names()
		app, ok, err := names.App(bourse.DefaultAppName)
		if err != nil || !ok || app.PrivateNetwork() != bourse.DefaultOrg+"/" {
			t.Fatalf("the default app: %+v, %t, %v", app, ok, err)
		}
		if list, err := names.Machines(&app); err != nil || len(list) != 0 {
			t.Errorf("before a machine exists: %+v, %v", list, err)
		}
		if _, ok, err := names.App("web"); ok || err != nil {
			t.Errorf("a missing app: %t, %v", ok, err)
		}
		m := h.place(image(rigImage), func(o *bourse.Order) { o.App = app })
		list, err := names.Machines(&app)
		if err != nil || len(list) != 1 || list[0].ID != m.ID || list[0].Name != m.Name ||
			list[0].PrivateIP != bourse.PrivateAddress(app.PrivateNetwork(), m.ID) {
			t.Errorf("machines of the default app: %+v, %v; want %s", list, err, m.ID)
		}
		theirs := h.place(image(rigImage), func(o *bourse.Order) { o.App.Org = "other" })
		app, ok, err = names.App(theirs.App)
		if err != nil || !ok || app.PrivateNetwork() != "other/" {
			t.Errorf("the app of a machine: %+v, %t, %v", app, ok, err)
		}
		if apps, err := names.Apps(); err != nil || len(apps) != 2 {
			t.Errorf("apps: %+v, %v", apps, err)
		}
	})
}

// Machines on other workers are added to the worker's own. If they cannot be looked up, the worker's own are still found.
func TestNamesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		names := h.Names()
		app, _, err := names.App(bourse.DefaultAppName)
		if err != nil {
			t.Fatal(err)
		}
		own := h.place(image(rigImage), func(o *bourse.Order) { o.App = app })
		other := bourse.Machine{ID: "00000900000001", Worker: "w9"}
		for _, failure := range []error{nil, bourse.Errorf(bourse.CodeUnavailable, "no view")} {
			want := []bourse.MachineID{own.ID}
			names.Elsewhere = func(of *bourse.App) ([]bourse.Machine, error) {
				if of.Name != app.Name || failure != nil {
					return nil, failure
				}
				return []bourse.Machine{other}, nil
			}
			if failure == nil {
				want = append(want, other.ID)
			}
			list, err := names.Machines(&app)
			var got []bourse.MachineID
			for _, m := range list {
				got = append(got, m.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("after %v: %v, %v; want %v", failure, got, err, want)
			}
		}
	})
}
