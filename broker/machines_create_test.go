package broker_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const createPath = "/v1/apps/default/machines"

func decodeBody[T any](t testing.TB, raw []byte) T {
	t.Helper()
	var out T
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("the reply is not JSON: %v\n%s", err, raw)
	}
	return out
}

// TestCreateReply checks the parts of the JSON reply that Machines API clients depend on.
func TestCreateReply(t *testing.T) {
	s := start(t)
	rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"gru","name":"web","unknown":{"x":[1]}}`)
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	m := decodeBody[map[string]any](t, rec.Body.Bytes())
	if m["host_status"] != "ok" || m["state"] != "started" || m["region"] != "gru" || m["name"] != "web" || m["worker"] != "w1" {
		t.Errorf("machine is %v", m)
	}
	if m["instance_id"] == "" || m["instance_id"] != m["version"] {
		t.Errorf("instance_id %v, version %v: want the same id", m["instance_id"], m["version"])
	}
	for _, key := range []string{"created_at", "updated_at"} {
		if _, err := time.Parse("2006-01-02T15:04:05Z", m[key].(string)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	guest := m["config"].(map[string]any)["guest"]
	if diff := cmp.Diff(map[string]any{"cpu_kind": "shared", "cpus": 1.0, "memory_mb": 256.0}, guest); diff != "" {
		t.Errorf("guest (-want +got):\n%s", diff)
	}
	events := m["events"].([]any)
	if got := events[0].(map[string]any)["type"]; len(events) != 2 || got != "start" {
		t.Errorf("events are %v: want start before launch", events)
	}
	if diff := cmp.Diff(map[string]any{"registry": "", "repository": "host", "tag": "latest"}, m["image_ref"]); diff != "" {
		t.Errorf("image_ref (-want +got):\n%s", diff)
	}
	for _, key := range []string{"nonce", "checks", "lease"} {
		if _, ok := m[key]; ok {
			t.Errorf("%s is present: %v", key, m[key])
		}
	}
}

func TestCreateReplyHeaders(t *testing.T) {
	s := start(t)
	rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`)
	m := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
	id := rec.Header().Get("Bourse-Order-Id")
	if id == "" || id != string(m.OrderID) || bourse.OrderID(id).Validate() != nil {
		t.Errorf("order id: header %q, body %q", id, m.OrderID)
	}
	if got, want := rec.Header().Get("Server-Timing"), "quote;dur=0.200, rank;dur=0.001, claim;dur=1.000, start;dur=2.000, total;dur=0.000"; got != want {
		t.Errorf("Server-Timing is %q, want %q", got, want)
	}
	if got := rec.Header().Get("fly-request-id"); !strings.HasSuffix(got, "-gru") {
		t.Errorf("fly-request-id is %q", got)
	}
}

func TestCreatePlacesTheOrder(t *testing.T) {
	s := start(t)
	app := bourse.DefaultApp(bourse.App{})
	id := bourse.NewOrderID().In(app.ID)
	rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"mad,any","skip_launch":true,"skip_service_registration":true,
		"lease_ttl":300,"race":2,"deadline":"3s","skip_secrets":true,"min_secrets_version":0,"lsvd":true}`, "Bourse-Order-Id", strings.ToLower(string(id)))
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	got := s.lastOrder(t)
	want := bourse.Options{SkipLaunch: true, Cordoned: true, SkipSecrets: true, LeaseTTL: 300, LeaseOwner: "local", Race: 2, Timeout: bourse.Duration(3 * time.Second), HasChosenID: true}
	if diff := cmp.Diff(want, got.Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if got.ID != id || got.App.Name != "default" || got.App.ID == "" || got.App.Org != "personal" {
		t.Errorf("order %s of app %+v", got.ID, got.App)
	}
	if diff := cmp.Diff([]bourse.Choice{{"mad"}, {"gru"}}, got.Regions); diff != "" {
		t.Errorf("regions (-want +got):\n%s", diff)
	}
	m := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
	if m.Nonce == "" || !m.Cordoned || m.State != bourse.StateCreated {
		t.Errorf("nonce %q, cordoned %v, state %s", m.Nonce, m.Cordoned, m.State)
	}
}

// TestCreateAcceptsAClonesImage checks that a client can clone a machine with an image name composed from image_ref.
func TestCreateAcceptsAClonesImage(t *testing.T) {
	s := start(t)
	rec := s.call(t, "POST", createPath, `{"config":{"image":"/host:latest","init":{"exec":["true"]}}}`)
	if rec.Code != http.StatusOK || s.lastOrder(t).Config.Image != bourse.ImageHost {
		t.Errorf("status %d, image %q", rec.Code, s.lastOrder(t).Config.Image)
	}
}

func TestRefusalListsWorkers(t *testing.T) {
	s := start(t)
	for _, w := range s.workers {
		w.full = true
	}
	rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`,"region":"gru"}`)
	if rec.Code != http.StatusUnprocessableEntity {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	body := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
	want := "insufficient resources available to fulfill request: could not reserve resource for machine: insufficient memory available to fulfill request; no worker has capacity"
	if body.Error != want || body.Status != "insufficient_capacity" || body.Code != bourse.CodeInsufficient {
		t.Errorf("body is %+v", body)
	}
	if len(body.Refusals) != 2 || body.Refusals[0].Worker != "w1" || body.Refusals[0].Wanted != 256 || body.Refusals[0].Free != 8 {
		t.Errorf("refusals are %+v", body.Refusals)
	}
	if id := rec.Header().Get("Bourse-Order-Id"); id == "" || id != string(body.OrderID) {
		t.Errorf("order id: header %q, body %q", id, body.OrderID)
	}
	// The broker that refused the order can still return the reasons later.
	if rec := s.call(t, "GET", "/v1/orders/"+string(body.OrderID), ""); rec.Code != http.StatusOK {
		t.Errorf("GET order: status %d: %s", rec.Code, rec.Body)
	}
}

// TestCreateStatusOfEachCode checks the status for each code. Clients retry a create after 502 or 503, so these may be
// returned only if the request had no effect.
func TestCreateStatusOfEachCode(t *testing.T) {
	want := map[bourse.Code]int{
		bourse.CodeInsufficient: 422, bourse.CodeAlreadyExists: 409, bourse.CodeUnavailable: 503, bourse.CodeTimeout: 408,
		bourse.CodeCanceled: 499, bourse.CodeInternal: 500, bourse.CodeRateLimited: 429, bourse.CodeInvalid: 400,
	}
	for code, status := range want {
		s := start(t)
		s.placeErr = bourse.Errorf(code, "because")
		rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`)
		body := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
		if rec.Code != status || body.Code != code || body.OrderID == "" {
			t.Errorf("%s: status %d, body %+v; want status %d", code, rec.Code, body, status)
		}
	}
}

func TestNameIsUniqueInItsApp(t *testing.T) {
	s := start(t)
	s.machine(t, "w2", "web", bourse.StateStopped)
	body := `{"config":` + hostConfig + `,"name":"web"}`
	rec := s.call(t, "POST", "/v1/apps/shop/machines", body)
	got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
	if rec.Code != http.StatusConflict || got.Code != bourse.CodeAlreadyExists || !strings.Contains(got.Error, "already exists") {
		t.Errorf("status %d, body %+v", rec.Code, got)
	}
	if len(s.orders) != 0 {
		t.Errorf("%d orders were placed", len(s.orders))
	}
	t.Run("in another app it is free", func(t *testing.T) {
		if rec := s.call(t, "POST", createPath, body); rec.Code != http.StatusOK {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("the same order is a repeated order", func(t *testing.T) {
		s := start(t)
		old := s.machine(t, "w2", "web", bourse.StateStopped)
		if rec := s.call(t, "POST", "/v1/apps/shop/machines", body, "Bourse-Order-Id", string(old.Order)); rec.Code != http.StatusOK {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
	})
	t.Run("after destruction it is free", func(t *testing.T) {
		s := start(t)
		old := s.machine(t, "w2", "web", bourse.StateStopped)
		s.call(t, "DELETE", "/v1/apps/shop/machines/"+string(old.ID), "")
		if rec := s.call(t, "POST", "/v1/apps/shop/machines", body); rec.Code != http.StatusOK {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
	})
}

func TestRepeatedOrderReturnsTheSameMachine(t *testing.T) {
	s := start(t)
	id := string(bourse.NewOrderID())
	body := `{"config":` + hostConfig + `,"name":"web"}`
	first := decodeBody[machinesapi.Machine](t, s.call(t, "POST", createPath, body, "Bourse-Order-Id", id).Body.Bytes())
	second := decodeBody[machinesapi.Machine](t, s.call(t, "POST", createPath, body, "Bourse-Order-Id", id).Body.Bytes())
	if first.ID == "" || first.ID != second.ID {
		t.Errorf("machines %q and %q", first.ID, second.ID)
	}
}

// TestCreateCachesTheApp checks that several creates look up the app only once.
func TestCreateCachesTheApp(t *testing.T) {
	s := start(t)
	for range 20 {
		if rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`); rec.Code != http.StatusOK {
			t.Fatalf("status %d: %s", rec.Code, rec.Body)
		}
	}
	if asked := s.workers["w1"].called("app/list"); asked != 0 || s.view.appReads != 1 {
		t.Errorf("the app was read %d times from the view and %d times from a worker, want once and never", s.view.appReads, asked)
	}
}

func TestCreateNeedsItsApp(t *testing.T) {
	s := start(t)
	rec := s.call(t, "POST", "/v1/apps/nowhere/machines", `{"config":`+hostConfig+`}`)
	if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != http.StatusNotFound || got.Error != "app not found" {
		t.Errorf("status %d, body %+v", rec.Code, got)
	}
}

func TestCreateWithoutWorkersIsUnavailable(t *testing.T) {
	s := start(t)
	s.members = nil
	if rec := s.call(t, "POST", createPath, `{"config":`+hostConfig+`}`); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
}

func TestQuoteSucceedsForRefusals(t *testing.T) {
	s := start(t)
	path := "/v1/apps/default/quotes"
	for outcome, err := range map[bourse.Outcome]error{
		bourse.OutcomeQuoted: nil, bourse.OutcomeRefused: bourse.Errorf(bourse.CodeInsufficient, "full"),
	} {
		s.placeErr = err
		rec := s.call(t, "POST", path, `{"config":`+hostConfig+`,"region":"mad"}`)
		if got := decodeBody[bourse.Decision](t, rec.Body.Bytes()); rec.Code != http.StatusOK || got.Outcome != outcome {
			t.Errorf("status %d, outcome %q; want %q", rec.Code, got.Outcome, outcome)
		}
	}
	s.placeErr = bourse.Errorf(bourse.CodeUnavailable, "no one answers")
	if rec := s.call(t, "POST", path, `{"config":`+hostConfig+`}`); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", rec.Code)
	}
	if len(s.orders) != 0 {
		t.Errorf("a quote placed %d orders", len(s.orders))
	}
}
