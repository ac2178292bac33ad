package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestCreateApp(t *testing.T) {
	for name, body := range map[string]string{
		"as fly-go asks":      `{"name":"shop","org_slug":"acme","network":"","app_role_id":""}`,
		"by its old name":     `{"app_name":"shop","org_slug":"acme"}`,
		"with unknown fields": `{"name":"shop","org_slug":"acme","enable_subdomains":true,"x":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			rec := s.call(t, "POST", "/v1/apps?wait=true", body)
			app := decodeBody[machinesapi.App](t, rec.Body.Bytes())
			if rec.Code != http.StatusCreated || app.Name != "shop" || app.Organization.Slug != "acme" || app.Status != "pending" ||
				app.NumericID <= 0 || len(app.ID) != 26 || app.CreatedAt < 1e12 {
				t.Errorf("status %d: %+v", rec.Code, app)
			}
			if kept, _ := s.view.App(t.Context(), "shop"); kept == nil || kept.ID != app.ID {
				t.Errorf("the view contains %+v", kept)
			}
			if got := decodeBody[machinesapi.App](t, s.call(t, "GET", "/v1/apps/shop", "").Body.Bytes()); got != app {
				t.Errorf("GET returns %+v, want %+v", got, app)
			}
		})
	}
}

func TestAnAppNameIsTaken(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "acme")
	for _, name := range []string{"shop", "default"} { // the default app always exists
		rec := s.call(t, "POST", "/v1/apps", `{"name":"`+name+`"}`)
		got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
		if rec.Code != 422 || got.Status != "name_taken" || got.Code != bourse.CodeAlreadyExists || !strings.Contains(got.Error, "Name has already been taken") {
			t.Errorf("%s: status %d, %+v", name, rec.Code, got)
		}
	}
}

func TestBadAppNames(t *testing.T) {
	s := start(t)
	for _, body := range []string{
		`{}`, `{"name":""}`, `{"name":"a b"}`, `{"name":"a/b"}`, `{"name":".."}`, `{"name":"A"}`, `{"name":"a\u0000"}`, `{"name":7}`,
		`{"name":"` + strings.Repeat("a", 10<<10) + `"}`, `{"name":"-a"}`, `{"name":"ok","org_slug":"no/org"}`, `nonsense`, ``,
	} {
		if rec := s.call(t, "POST", "/v1/apps", body); rec.Code != http.StatusBadRequest {
			t.Errorf("%.60s: status %d", body, rec.Code)
		}
	}
	if apps, _ := s.view.Apps(t.Context()); len(apps) != 0 {
		t.Errorf("%v were written", apps)
	}
}

// TestEarlierAppCreationWins checks that, if two brokers create an app with the same name, the merge keeps the earlier
// app and the other broker's caller receives an error.
func TestEarlierAppCreationWins(t *testing.T) {
	early := bourse.App{Name: "shop", ID: "01J00000000000000000000000", Org: "other", CreatedAt: time.Now().Add(-time.Second)}
	s := start(t)
	s.view.onPut = func() { s.view.put(early) } // between the lookup and the write
	rec := s.call(t, "POST", "/v1/apps", `{"name":"shop"}`)
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != 422 || got.Status != "name_taken" {
		t.Errorf("status %d, %+v", rec.Code, got)
	}
	if got := decodeBody[machinesapi.App](t, s.call(t, "GET", "/v1/apps/shop", "").Body.Bytes()); got.ID != early.ID {
		t.Errorf("the app is %+v", got)
	}
}

// TestCreateAppWithFailedWrite checks that a failed write results in a 503 only if the request had no effect, because
// clients retry after a 503.
func TestCreateAppWithFailedWrite(t *testing.T) {
	for name, err := range map[string]error{"no worker is asked": errDown, "the workers' answers were lost": errLost} {
		t.Run(name, func(t *testing.T) {
			s := startBlind(t)
			for _, w := range s.workers {
				w.silence(err)
			}
			if rec := s.call(t, "POST", "/v1/apps", `{"name":"shop"}`); rec.Code != http.StatusServiceUnavailable {
				t.Errorf("status %d: %s", rec.Code, rec.Body)
			}
		})
	}
	for err, status := range map[error]int{errDown: 503, errLost: 408} {
		t.Run("the view: "+err.Error(), func(t *testing.T) {
			s := start(t)
			s.view.putErr = err
			if rec := s.call(t, "POST", "/v1/apps", `{"name":"shop"}`); rec.Code != status {
				t.Errorf("status %d, want %d: %s", rec.Code, status, rec.Body)
			}
		})
	}
}

func TestIdempotencyKeyCreatesOneApp(t *testing.T) {
	s := start(t)
	create := func(body string) (int, machinesapi.App) {
		rec := s.call(t, "POST", "/v1/apps", body)
		return rec.Code, decodeBody[machinesapi.App](t, rec.Body.Bytes())
	}
	_, first := create(`{"name":"shop","idempotency_key":"k"}`)
	for _, body := range []string{`{"name":"shop","idempotency_key":"k"}`, `{"idempotency_key":"k"}`} {
		if status, again := create(body); status != http.StatusCreated || again.ID != first.ID || again.Name != "shop" {
			t.Errorf("%s: status %d, %+v", body, status, again)
		}
	}
	if status, _ := create(`{"name":"other","idempotency_key":"k"}`); status != http.StatusUnprocessableEntity {
		t.Errorf("another name: status %d", status)
	}
	if status, _ := create(`{"name":"shop","idempotency_key":"k2"}`); status != http.StatusUnprocessableEntity {
		t.Errorf("another key: status %d", status)
	}
	if status, _ := create(`{"idempotency_key":"k3"}`); status != http.StatusBadRequest {
		t.Errorf("no name and a new key: status %d", status)
	}
	s.call(t, "DELETE", "/v1/apps/shop", "")
	if status, _ := create(`{"name":"shop","idempotency_key":"k"}`); status != http.StatusUnprocessableEntity {
		t.Errorf("after deletion: status %d", status)
	}
}

func TestGetApp(t *testing.T) {
	s := start(t)
	s.machine(t, "w1", "a", bourse.StateStarted)
	s.machine(t, "w3", "b", bourse.StateStopped)
	s.machine(t, "w3", "c", bourse.StateDestroyed)
	got := decodeBody[machinesapi.App](t, s.call(t, "GET", "/v1/apps/shop", "").Body.Bytes())
	if got.MachineCount != 2 || got.Status != "deployed" {
		t.Errorf("app is %+v", got)
	}
	rec := s.call(t, "GET", "/v1/apps/none", "")
	// fly-go compares the whole text to determine whether an app name is available
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != 404 || got.Error != "app not found" {
		t.Errorf("status %d, %+v", rec.Code, got)
	}
}

func TestListApps(t *testing.T) {
	s := start(t)
	s.app(t, "zoo", "acme")
	s.app(t, "shop", "personal")
	s.machine(t, "w1", "a", bourse.StateStarted)
	s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`) // this path uses the default app
	for query, want := range map[string][]bourse.AppName{
		"": {"default", "shop", "zoo"}, "?org_slug=personal": {"default", "shop"}, "?org_slug=acme&app_role=": {"zoo"}, "?org_slug=none": {},
	} {
		list := decodeBody[machinesapi.AppList](t, s.call(t, "GET", "/v1/apps"+query, "").Body.Bytes())
		got := []bourse.AppName{}
		for _, a := range list.Apps {
			got = append(got, a.Name)
			if a.Name == "shop" && a.MachineCount != 1 {
				t.Errorf("shop is %+v", a)
			}
		}
		if !cmp.Equal(got, want) || list.Total != len(want) {
			t.Errorf("GET apps%s: %v of %d, want %v", query, got, list.Total, want)
		}
	}
}

func TestDeleteApp(t *testing.T) {
	t.Run("with its stopped machines", func(t *testing.T) {
		s := start(t)
		m := s.machine(t, "w3", "a", bourse.StateStopped)
		rec := s.call(t, "DELETE", "/v1/apps/shop", "")
		if rec.Code != http.StatusAccepted || rec.Body.Len() != 0 {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
		if got := s.workers["w3"].machines[m.ID].State; got != bourse.StateDestroyed {
			t.Errorf("the machine is %s", got)
		}
		for _, path := range []string{"/v1/apps/shop", "/v1/apps/shop/machines"} {
			if rec := s.call(t, "GET", path, ""); rec.Code != 404 {
				t.Errorf("GET %s: status %d", path, rec.Code)
			}
		}
		if rec := s.call(t, "DELETE", "/v1/apps/shop", ""); rec.Code != 404 {
			t.Errorf("again: status %d", rec.Code)
		}
		if rec := s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`}`); rec.Code != 404 {
			t.Errorf("a new machine: status %d", rec.Code)
		}
		if rec := s.call(t, "POST", "/v1/apps", `{"name":"shop"}`); rec.Code != 201 {
			t.Errorf("another app with the name: status %d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("with running machines, as clients request", func(t *testing.T) {
		s := start(t)
		m := s.machine(t, "w3", "a", bourse.StateStarted)
		if rec := s.call(t, "DELETE", "/v1/apps/shop", ""); rec.Code != 202 || s.workers["w3"].machines[m.ID].State != bourse.StateDestroyed {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("not while machines are running, with force=false", func(t *testing.T) {
		s := start(t)
		m := s.machine(t, "w3", "a", bourse.StateStarted)
		s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/lease?ttl=60", "")
		if rec := s.call(t, "DELETE", "/v1/apps/shop?force=false", ""); rec.Code != 412 || !strings.Contains(rec.Body.String(), "force=true") {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
		if rec := s.call(t, "DELETE", "/v1/apps/shop?force=true", ""); rec.Code != 202 || s.workers["w3"].machines[m.ID].State != bourse.StateDestroyed {
			t.Errorf("forced: status %d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("not while a worker is unresponsive, unless forced", func(t *testing.T) {
		s := start(t)
		s.machine(t, "w1", "a", bourse.StateStopped)
		s.workers["w2"].silence(errDown)
		if rec := s.call(t, "DELETE", "/v1/apps/shop", ""); rec.Code != 503 || s.workers["w1"].called("machine/destroy") != 0 {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
		if rec := s.call(t, "DELETE", "/v1/apps/shop?force=true", ""); rec.Code != 202 || rec.Header().Get("Bourse-Unreachable") != "w2" {
			t.Errorf("forced: status %d, unreachable %q", rec.Code, rec.Header().Get("Bourse-Unreachable"))
		}
	})
	t.Run("not if a machine cannot be destroyed", func(t *testing.T) {
		s := start(t)
		s.machine(t, "w1", "a", bourse.StateStopped)
		s.workers["w1"].set(func(call string) error {
			if call == "machine/destroy" {
				return errLost
			}
			return nil
		})
		if rec := s.call(t, "DELETE", "/v1/apps/shop", ""); rec.Code != 408 {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
		if rec := s.call(t, "GET", "/v1/apps/shop", ""); rec.Code != 200 {
			t.Errorf("the app was deleted: status %d", rec.Code)
		}
	})
}

// TestDefaultAppExistsAfterDeletion checks that the default app exists again after it is deleted,
// with the same new ID at every broker.
func TestDefaultAppExistsAfterDeletion(t *testing.T) {
	s := start(t)
	id := func() string {
		return decodeBody[machinesapi.App](t, s.call(t, "GET", "/v1/apps/default", "").Body.Bytes()).ID
	}
	s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`)
	first := id()
	if rec := s.call(t, "DELETE", "/v1/apps/default?force=true", ""); rec.Code != 202 {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	second := id()
	if first == second || second == "" {
		t.Errorf("ids %s and %s", first, second)
	}
	if rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`); rec.Code != 200 || s.lastOrder(t).App.ID != second {
		t.Errorf("status %d, app %+v, want id %s", rec.Code, s.lastOrder(t).App, second)
	}
	if got := id(); got != second {
		t.Errorf("after an order used the app, its ID is %s, want %s", got, second)
	}
}

// TestAppDeletedByAnotherBroker checks that the entries of a broker's app cache expire.
func TestAppDeletedByAnotherBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		app := s.app(t, "shop", "personal")
		create := func() int {
			return s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`}`).Code
		}
		if got := create(); got != 200 {
			t.Fatalf("status %d", got)
		}
		now := time.Now()
		app.DeletedAt = &now
		s.view.put(app)
		time.Sleep(time.Second + time.Millisecond)
		if got := create(); got != 404 {
			t.Errorf("status %d", got)
		}
	})
}
