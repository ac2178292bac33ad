package broker_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
)

// two creates apps of two organizations. Tokens "acme" and "evil" belong to these organizations.
func two(t testing.TB) *setup {
	t.Helper()
	s := start(t, func(c *broker.Config) {
		c.Tokens = tokenMap{"root": {Name: "root"}, "acme": {Name: "ann@acme", Org: "acme"}, "evil": {Name: "eve@evil", Org: "evil"}}
	})
	s.app(t, "shop", "acme")
	s.app(t, "cheat", "evil")
	return s
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// TestOrderIDOfAnotherOrganization checks that a caller who uses another organization's order ID gets a different
// machine or none.
func TestOrderIDOfAnotherOrganization(t *testing.T) {
	s := two(t)
	body := `{"config":{"image":"host","init":{"exec":["true"]},"env":{"PASSWORD":"hunter2"}},"lease_ttl":100}`
	chosen := string(bourse.NewOrderID())
	rec := s.call(t, "POST", "/v1/apps/shop/machines", body, append(bearer("acme"), "Bourse-Order-Id", chosen)...)
	theirs := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
	for _, id := range []string{chosen, string(theirs.OrderID)} {
		rec := s.call(t, "POST", "/v1/apps/cheat/machines", `{"config":`+hostConfig+`}`, append(bearer("evil"), "Bourse-Order-Id", id)...)
		got := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
		if rec.Code != http.StatusOK || got.ID == theirs.ID || strings.Contains(rec.Body.String(), "hunter2") || got.OrderID == theirs.OrderID {
			t.Errorf("order %s of evil: %d %s", id, rec.Code, rec.Body)
		}
		for _, query := range []string{"", "?app=shop", "?app=cheat"} {
			rec := s.call(t, "GET", "/v1/orders/"+id+query, "", bearer("evil")...)
			if strings.Contains(rec.Body.String(), string(theirs.ID)) || strings.Contains(rec.Body.String(), "shop") {
				t.Errorf("GET %s%s: %d %s", id, query, rec.Code, rec.Body)
			}
		}
		// The order's owner finds the order by either ID. The chosen ID works on this broker, and on any broker if the
		// app is specified.
		for _, query := range []string{"", "?app=shop"} {
			if rec := s.call(t, "GET", "/v1/orders/"+id+query, "", bearer("acme")...); !strings.Contains(rec.Body.String(), string(theirs.OrderID)) && query != "" {
				t.Errorf("the owner's GET %s%s: %d %s", id, query, rec.Code, rec.Body)
			}
		}
		again := s.call(t, "POST", "/v1/apps/shop/machines", body, append(bearer("acme"), "Bourse-Order-Id", id)...)
		if m := decodeBody[machinesapi.Machine](t, again.Body.Bytes()); m.ID != theirs.ID {
			t.Errorf("the owner's repeated order %s: %s, want %s", id, m.ID, theirs.ID)
		}
	}
}

// TestTaskAndVolumeOrdersBelongToTheirApps checks that the IDs of task and volume orders are
// separate for each app, too.
func TestTaskAndVolumeOrdersBelongToTheirApps(t *testing.T) {
	s := two(t)
	chosen := string(bourse.NewOrderID())
	for _, c := range []struct{ path, body string }{
		{"/tasks", `{"task":"inc"}`},
		{"/volumes", `{"name":"data","region":"gru"}`},
	} {
		s.call(t, "POST", "/v1/apps/shop"+c.path, c.body, append(bearer("acme"), "Bourse-Order-Id", chosen)...)
		ours := s.lastOrder(t).ID
		for _, id := range []string{chosen, string(ours)} {
			s.call(t, "POST", "/v1/apps/cheat"+c.path, c.body, append(bearer("evil"), "Bourse-Order-Id", id)...)
			if o := s.lastOrder(t); o.ID == ours || o.App.Name != "cheat" {
				t.Errorf("%s: evil's order %s is %s's", c.path, o.ID, o.App.Name)
			}
		}
	}
}

// TestReservationOfAnotherOrganization checks that the ID of another organization's reservation
// cannot be used to show, extend, release or use that reservation, and that reserving with the same
// ID does not affect it.
func TestReservationOfAnotherOrganization(t *testing.T) {
	s := two(t)
	chosen := string(bourse.NewReservationKey())
	r := s.reserve(t, `{"id":"`+chosen+`","orders":[{"app":"shop","count":2}]}`, bearer("acme")...)
	held := func() int {
		rec := s.call(t, "GET", reservePath+"/"+string(r.ID), "", bearer("acme")...)
		return len(decodeBody[machinesapi.Reservation](t, rec.Body.Bytes()).Holds)
	}
	for _, id := range []string{chosen, string(r.ID.Key())} {
		s.call(t, "POST", reservePath, `{"id":"`+id+`","orders":[{"app":"cheat","count":2}]}`, bearer("evil")...)
		if o := s.lastOrder(t); o.Hold.Reservation == r.ID.Key() {
			t.Errorf("evil's reservation got ID %s", o.Hold.Reservation)
		}
		elsewhere := bourse.ReservationKey(id).At([]bourse.WorkerTag{0xcccccc}) // names a worker that has no hold for the reservation
		for _, target := range []string{string(r.ID), string(elsewhere)} {
			for _, c := range []struct{ method, body string }{{"GET", ""}, {"PATCH", `{"ttl_seconds":900}`}, {"DELETE", ""}} {
				rec := s.call(t, c.method, reservePath+"/"+target, c.body, bearer("evil")...)
				if rec.Code != http.StatusNotFound {
					t.Errorf("%s of %s by evil: %d %s", c.method, target, rec.Code, rec.Body)
				}
			}
		}
	}
	if n := held(); n != 2 {
		t.Errorf("%d are held, want 2", n)
	}
	for _, w := range s.workers {
		if n := w.called("reservation/release"); n != 0 {
			t.Errorf("worker %s received %d releases", w.self.ID, n)
		}
	}
	// The owner of a reservation may release it repeatedly.
	for range 2 {
		if rec := s.call(t, "DELETE", reservePath+"/"+string(r.ID), "", bearer("acme")...); rec.Code != http.StatusOK {
			t.Errorf("its owner's release: %d %s", rec.Code, rec.Body)
		}
	}
}

// TestRecreatedAppHasNothingOfTheOldOne checks that, if another organization creates an app with the name of a deleted
// app, the new app does not get any of the deleted app's objects, whatever the workers and the view still contain.
func TestRecreatedAppHasNothingOfTheOldOne(t *testing.T) {
	s := two(t)
	created := s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`,"name":"one"}`, bearer("acme")...)
	m := decodeBody[machinesapi.Machine](t, created.Body.Bytes())
	vol := decodeBody[machinesapi.Volume](t, s.call(t, "POST", "/v1/apps/shop/volumes", `{"name":"data","region":"mad"}`, bearer("acme")...).Body.Bytes())
	order := created.Header().Get("Bourse-Order-Id")

	// Delete the app with force while its worker is unresponsive. Then the worker comes back.
	owner := s.workers[m.Worker]
	owner.silence(errDown)
	s.workers[vol.Worker].silence(errDown)
	if rec := s.call(t, "DELETE", "/v1/apps/shop?force=true", "", bearer("acme")...); rec.Code != http.StatusAccepted {
		t.Fatalf("delete: %d %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, "POST", "/v1/apps", `{"name":"shop","org_slug":"evil"}`, bearer("evil")...); rec.Code != http.StatusCreated {
		t.Fatalf("create: %d %s", rec.Code, rec.Body)
	}
	owner.silence(nil)
	s.workers[vol.Worker].silence(nil)

	one, volume := "/v1/apps/shop/machines/"+string(m.ID), "/v1/apps/shop/volumes/"+string(vol.ID)
	for _, c := range []struct{ method, path, body string }{
		{"GET", one, ""},
		{"GET", one + "/events", ""},
		{"GET", one + "/logs", ""},
		{"GET", one + "/metadata", ""},
		{"GET", one + "/lease", ""},
		{"POST", one + "/exec", `{"command":["id"]}`},
		{"POST", one + "/stop", ""},
		{"DELETE", one + "?force=true", ""},
		{"GET", one + "/usage", ""},
		{"GET", volume, ""},
		{"DELETE", volume, ""},
		{"PUT", volume + "/extend", `{"size_gb":9}`},
		{"POST", volume + "/snapshots", ""},
		{"GET", volume + "/snapshots", ""},
		{"GET", "/v1/orders/" + order, ""},
		{"POST", "/v1/apps/shop/volumes", `{"name":"data","region":"mad","source_volume_id":"` + string(vol.ID) + `"}`},
	} {
		if rec := s.call(t, c.method, c.path, c.body, bearer("evil")...); rec.Code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s, want 404", c.method, c.path, rec.Code, rec.Body)
		}
	}
	for _, path := range []string{"/v1/apps/shop/machines", "/v1/apps/shop/machines?include_deleted=true", "/v1/apps/shop/volumes"} {
		if rec := s.call(t, "GET", path, "", bearer("evil")...); strings.TrimSpace(rec.Body.String()) != "[]" {
			t.Errorf("GET %s: %s", path, rec.Body)
		}
	}
	for _, path := range []string{"/v1/orgs/evil/volumes", "/v1/apps", "/v1/apps/shop"} {
		if rec := s.call(t, "GET", path, "", bearer("evil")...); strings.Contains(rec.Body.String(), string(vol.ID)) || strings.Contains(rec.Body.String(), `"machine_count":1`) {
			t.Errorf("GET %s: %s", path, rec.Body)
		}
	}
	// The name is available, and deleting the new app does not affect the machines of the old one.
	if rec := s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`,"name":"one"}`, bearer("evil")...); rec.Code != http.StatusOK {
		t.Errorf("a machine of the same name: %d %s", rec.Code, rec.Body)
	}
	s.call(t, "DELETE", "/v1/apps/shop?force=true", "", bearer("evil")...)
	if got, err := owner.find(m.ID); err != nil || got.State != bourse.StateStarted {
		t.Errorf("the former app's machine: %+v, %v", got, err)
	}
	// A caller with full permissions can destroy the old app's machines by their IDs.
	if rec := s.call(t, "DELETE", one+"?force=true", "", bearer("root")...); rec.Code != http.StatusOK {
		t.Errorf("root destroys leftover machines: %d %s", rec.Code, rec.Body)
	}
}

// TestRecreatedAppHasNoDestroyedMachines checks that a machine that was destroyed with its app is not listed for a new
// app of the same name, even immediately afterward.
func TestRecreatedAppHasNoDestroyedMachines(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`}`)
	s.view.freeze() // the view receives the destruction too late
	s.call(t, "DELETE", "/v1/apps/shop?force=true", "")
	if rec := s.call(t, "POST", "/v1/apps", `{"name":"shop"}`); rec.Code != http.StatusCreated {
		t.Fatalf("create: %d %s", rec.Code, rec.Body)
	}
	if got, _ := s.list(t, ""); len(got) != 0 {
		t.Errorf("the new app has %v", got)
	}
}

// TestLaterMachineWithTheSameNameHasAConflict checks that, if two machines with the same name are created at the same
// time, both exist, and the list shows which of them owns the name. A further create is refused based on the view,
// without asking the workers.
func TestLaterMachineWithTheSameNameHasAConflict(t *testing.T) {
	s := start(t)
	first := s.machine(t, "w1", "web", bourse.StateStarted)
	second := s.machine(t, "w3", "web", bourse.StateStarted)
	if second.Order < first.Order { // both were created in the same millisecond
		first, second = second, first
	}
	list := decodeBody[[]machinesapi.Machine](t, s.call(t, "GET", "/v1/apps/shop/machines", "").Body.Bytes())
	if len(list) != 2 {
		t.Fatalf("list: %+v", list)
	}
	for _, m := range list {
		want := bourse.MachineID("")
		if m.ID == second.ID {
			want = first.ID
		}
		if m.NameConflict != want {
			t.Errorf("machine %s: conflict with %q, want %q", m.ID, m.NameConflict, want)
		}
		for _, ctx := range []string{"", "?include_leases=true"} {
			one := decodeBody[machinesapi.Machine](t, s.call(t, "GET", "/v1/apps/shop/machines/"+string(m.ID)+ctx, "").Body.Bytes())
			if one.NameConflict != want {
				t.Errorf("machine %s alone: conflict with %q, want %q, as in the list", m.ID, one.NameConflict, want)
			}
		}
	}
	asked := func() (n int) {
		for _, w := range s.workers {
			n += w.called("machine/list")
		}
		return n
	}
	before := asked()
	if rec := s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`,"name":"web"}`); rec.Code != http.StatusConflict {
		t.Errorf("a third: %d %s", rec.Code, rec.Body)
	}
	if n := asked() - before; n != 0 {
		t.Errorf("%d workers were asked for the name", n)
	}
}
