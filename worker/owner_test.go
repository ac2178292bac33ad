package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// appOf returns an app with the given name. life is the number of earlier apps with
// that name.
func appOf(name bourse.AppName, org string, life int) bourse.App {
	app := bourse.App{Name: name, ID: bourse.NewAppID(), Generation: life, Org: org, CreatedAt: time.Now().UTC()}
	return app
}

func of(app bourse.App) func(*bourse.Order) { return func(o *bourse.Order) { o.App = app } }

// If an app uses another app's order id, it does not see that order's record, and its own order is refused, whatever
// the order's kind.
func TestAnOrderOfAnotherAppIsNotRevealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		ours, theirs := appOf("shop", "acme", 0), appOf("cheat", "evil", 0)
		order := newOrder(t, of(ours), func(o *bourse.Order) { o.HasChosenID, o.LeaseTTL = true, 60 })
		claim := func(o *bourse.Order) (*bourse.Fill, *bourse.Refusal) {
			t.Helper()
			fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *o, Decision: bourse.Decision{
				Order: o.ID, App: o.App.Name, AppID: o.App.ID, At: time.Now(),
			}})
			if err != nil {
				t.Fatal(err)
			}
			return fill, refusal
		}
		first, refusal := claim(order)
		if refusal != nil {
			t.Fatalf("the first claim: %+v", refusal)
		}
		key := bourse.NewReservationKey()
		for name, change := range map[string]func(*bourse.Order){
			"a machine": func(*bourse.Order) {},
			"a hold": func(o *bourse.Order) {
				o.Hold, o.LeaseTTL = &bourse.HoldOrder{Reservation: key, TTL: bourse.Duration(time.Minute)}, 0
			},
		} {
			forged := newOrder(t, of(theirs), func(o *bourse.Order) { o.ID, o.HasChosenID = order.ID, true }, change)
			q, err := h.quote(t.Context(), forged)
			if err != nil || q.Refusal == nil || q.Refusal.Reason != bourse.RefusedCanceled || q.Fill() != nil {
				t.Errorf("%s: quoted %+v, %v", name, q, err)
			}
			if fill, refusal := claim(forged); fill != nil || refusal == nil || refusal.Reason != bourse.RefusedCanceled {
				t.Errorf("%s: filled %+v, refused %+v", name, fill, refusal)
			}
		}
		again, _ := claim(order)
		if again == nil || !again.Repeated || again.Machine.ID != first.Machine.ID {
			t.Errorf("repeated order from the order's own app: %+v", again)
		}
		h.verify()
	})
}

// If an app is known to be deleted, or replaced by another app with its name, its
// orders are refused. Orders of an app that the worker does not know yet, and that is
// newer, are filled.
func TestClaimsOfAFormerAppAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newVolumeHost(t)
		defer h.crash()
		former := appOf("shop", "acme", 0)
		h.place(of(former))
		gone := former
		at := time.Now().UTC()
		gone.DeletedAt = &at
		if err := h.store.Update(t.Context(), func(tx *store.Tx) error { return state.MergeApp(tx, gone) }); err != nil {
			t.Fatal(err)
		}
		refused := func(what string, app bourse.App) {
			t.Helper()
			for kind, order := range map[string]*bourse.Order{
				"machine": newOrder(t), "volume": newVolumeOrder(t), "cold task": cold(t, "", "cat"),
				"hold": newHoldOrder(t, bourse.NewReservationKey(), 0, time.Minute),
			} {
				order.App = app
				if r := h.refusalOf(order); r.Reason != bourse.RefusedApp {
					t.Errorf("%s of an app that was %s: refusal %+v", kind, what, r)
				}
			}
			if q, err := h.quote(t.Context(), call(t, "one", 0, of(app)).ForQuote()); err != nil || q.Refusal == nil || q.Refusal.Reason != bourse.RefusedApp {
				t.Errorf("warm task of an app that was %s: refusal %+v, %v", what, q.Refusal, err)
			}
		}
		refused("deleted", former)
		present := appOf("shop", "evil", 1)
		if m := h.place(of(present)); m.AppID != present.ID {
			t.Errorf("the new app's machine belongs to %q, want %q", m.AppID, present.ID)
		}
		refused("made again", former)

		// The new app does not see the former app's machines.
		list, err := h.machines.List(t.Context(), &present, func(*bourse.Machine) bool { return true })
		if err != nil || len(list) != 1 || list[0].AppID != present.ID {
			t.Errorf("machines of the new app: %+v, %v", list, err)
		}
		h.verify()
	})
}

// The default app can be deleted and used again any number of times.
func TestTheDefaultAppIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		app := bourse.DefaultApp(bourse.App{})
		for range 3 {
			if m := h.place(of(app)); m.AppID != app.ID {
				t.Errorf("the machine belongs to %q, want %q", m.AppID, app.ID)
			}
			at := app.CreatedAt.Add(time.Hour)
			app.DeletedAt = &at
			if err := h.store.Update(t.Context(), func(tx *store.Tx) error { return state.MergeApp(tx, app) }); err != nil {
				t.Fatal(err)
			}
			next, err := h.Local().App(t.Context(), bourse.DefaultAppName)
			if err != nil || next.ID == app.ID || next.DeletedAt != nil {
				t.Fatalf("the next default app: %+v, %v", next, err)
			}
			app = next
		}
	})
}
