package broker_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *setup) list(t *testing.T, query string) ([]string, http.Header) {
	t.Helper()
	rec := s.call(t, "GET", "/v1/apps/shop/machines"+query, "")
	if rec.Code != http.StatusOK {
		t.Fatalf("GET machines%s: status %d: %s", query, rec.Code, rec.Body)
	}
	names := []string{}
	for _, m := range decodeBody[[]machinesapi.Machine](t, rec.Body.Bytes()) {
		names = append(names, m.Name)
	}
	return names, rec.Header()
}

func TestListFilters(t *testing.T) {
	s := start(t)
	a := s.machine(t, "w1", "a", bourse.StateStarted)
	s.machine(t, "w2", "b", bourse.StateStopped)
	s.machine(t, "w3", "c", bourse.StateStarted)
	s.machine(t, "w3", "d", bourse.StateDestroyed)
	s.workers["w1"].add(bourse.Order{App: bourse.App{Name: "other"}, Name: "x"}, bourse.StateStarted)
	meta := "/v1/apps/shop/machines/" + string(a.ID) + "/metadata/"
	s.call(t, "POST", meta+"group", `{"value":"web"}`)
	s.call(t, "POST", meta+"v", `{"value":"2"}`)
	for query, want := range map[string][]string{
		"":                                  {"a", "b", "c"},
		"?include_deleted=true":             {"a", "b", "c", "d"},
		"?region=mad":                       {"c"},
		"?region=nowhere":                   {},
		"?state=started":                    {"a", "c"},
		"?state=stopped,started":            {"a", "b", "c"},
		"?state=stopped&state=failed":       {"b"},
		"?state=nonsense":                   {},
		"?metadata.group=web":               {"a"},
		"?metadata.group=web&metadata.v=1":  {},
		"?metadata.group=web&metadata.v=2":  {"a"},
		"?metadata.none=":                   {},
		"?state=started&region=gru&x=y":     {"a"},
		"?include_deleted&state=destroyed":  {"d"},
		"?include_deleted=false&region=gru": {"a", "b"},
	} {
		if got, _ := s.list(t, query); !cmp.Equal(got, want) {
			t.Errorf("GET machines%s: %v, want %v", query, got, want)
		}
	}
}

// TestListOfAllAppsContainsOnlyOwnMachines checks that the list of all apps contains only machines
// of the caller's apps. It must not contain machines of an earlier app that had the same name and
// belonged to another organization.
func TestListOfAllAppsContainsOnlyOwnMachines(t *testing.T) {
	s := start(t, withTokens)
	shop, zoo := s.app(t, "shop", "acme"), s.app(t, "zoo", "zoological")
	add := func(w bourse.WorkerID, app bourse.App, name string) {
		s.workers[w].add(bourse.Order{ID: bourse.NewOrderID(), App: app, Name: name, Config: bourse.Config{Image: "host"}}, bourse.StateStarted)
	}
	add("w1", shop, "a")
	add("w3", shop, "b")
	add("w1", zoo, "lion")
	add("w2", bourse.App{Name: "shop", ID: "01J0000000000000000000former"}, "left")
	for query, want := range map[string][]string{
		"root":                           {"a", "b", "left", "lion"},
		"root ?worker=w1":                {"a", "lion"},
		"acme":                           {"a", "b"},
		"acme ?worker=w1":                {"a"},
		"shop ?region=mad&state=started": {"b"},
		"none":                           nil,
	} {
		token, query, _ := strings.Cut(query, " ")
		rec := s.call(t, "GET", "/v1/machines"+query, "", "Authorization", "Bearer "+token)
		if token == "none" {
			if rec.Code != http.StatusUnauthorized {
				t.Errorf("without a token: status %d", rec.Code)
			}
			continue
		}
		var got []string
		for _, m := range decodeBody[[]machinesapi.Machine](t, rec.Body.Bytes()) {
			got = append(got, m.Name)
		}
		slices.Sort(got)
		if !cmp.Equal(got, want) {
			t.Errorf("token %s, GET /v1/machines%s: %v, want %v", token, query, got, want)
		}
	}
}

func TestSummaryOmitsConfigAndHistory(t *testing.T) {
	s := start(t)
	s.machine(t, "w1", "a", bourse.StateStarted)
	m := decodeBody[[]map[string]any](t, s.call(t, "GET", "/v1/apps/shop/machines?summary=true", "").Body.Bytes())[0]
	for _, key := range []string{"config", "events", "checks", "host_status", "nonce"} {
		if _, ok := m[key]; ok {
			t.Errorf("%s is present", key)
		}
	}
	if m["id"] == "" || m["state"] != "started" {
		t.Errorf("machine is %v", m)
	}
}

func TestListNamesUnreachableWorkers(t *testing.T) {
	s := startBlind(t)
	s.machine(t, "w1", "a", bourse.StateStarted)
	s.machine(t, "w3", "c", bourse.StateStarted)
	s.workers["w3"].silence(errDown)
	s.workers["w2"].silence(errLost)
	got, header := s.list(t, "")
	if !cmp.Equal(got, []string{"a"}) || header.Get("Bourse-Unreachable") != "w2,w3" {
		t.Errorf("%v, unreachable %q", got, header.Get("Bourse-Unreachable"))
	}
	if _, header := s.list(t, "?region=gru"); header.Get("Bourse-Unreachable") != "w2" {
		t.Errorf("unreachable in gru: %q", header.Get("Bourse-Unreachable"))
	}
}

// TestListWithoutAnswersIsAnError checks that a list is an error if no worker answers. An empty
// list would mean that there are no machines.
func TestListWithoutAnswersIsAnError(t *testing.T) {
	s := startBlind(t)
	s.machine(t, "w1", "a", bourse.StateStarted)
	for _, w := range s.workers {
		w.silence(errDown)
	}
	if rec := s.call(t, "GET", "/v1/apps/shop/machines", ""); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
}

func TestListOfEmptyAndMissingApp(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	if rec := s.call(t, "GET", "/v1/apps/shop/machines", ""); rec.Body.String() != "[]\n" {
		t.Errorf("an app without machines: %d %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, "GET", "/v1/apps/default/machines", ""); rec.Body.String() != "[]\n" {
		t.Errorf("the default app before its first use: %d %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, "GET", "/v1/apps/none/machines", ""); rec.Code != http.StatusNotFound {
		t.Errorf("missing app: status %d", rec.Code)
	}
}

func TestGetMachine(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w2", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	got := decodeBody[machinesapi.Machine](t, s.call(t, "GET", path, "").Body.Bytes())
	if got.ID != m.ID || got.Worker != "w2" || got.Port != 30000 || got.HostStatus != "ok" || got.Config == nil || got.Lease != nil {
		t.Errorf("machine is %+v", got)
	}
	t.Run("with its lease on request", func(t *testing.T) {
		s.call(t, "POST", path+"/lease?ttl=30", `{"description":"deploy"}`)
		got := decodeBody[machinesapi.Machine](t, s.call(t, "GET", path+"?include_leases=true", "").Body.Bytes())
		if got.Lease == nil || got.Lease.Owner != "local" || got.Lease.Description != "deploy" || got.Lease.ExpiresAt == 0 || got.Nonce != "" {
			t.Errorf("lease is %+v, nonce %q", got.Lease, got.Nonce)
		}
	})
	t.Run("a destroyed machine, with its exit event", func(t *testing.T) {
		s := start(t)
		path := "/v1/apps/shop/machines/" + string(s.machine(t, "w2", "web", bourse.StateStarted).ID)
		s.call(t, "POST", path+"/stop", "")
		s.call(t, "DELETE", path, "")
		got := decodeBody[machinesapi.Machine](t, s.call(t, "GET", path, "").Body.Bytes())
		if got.State != bourse.StateDestroyed || got.Events[0].Type != bourse.EventDestroy || got.Events[1].Request.ExitEvent.ExitCode != 130 {
			t.Errorf("state %s, events %+v", got.State, got.Events)
		}
	})
	t.Run("a machine of an unresponsive worker", func(t *testing.T) {
		s := startBlind(t)
		path := "/v1/apps/shop/machines/" + string(s.machine(t, "w2", "web", bourse.StateStarted).ID)
		for _, err := range []error{errDown, errLost} {
			s.workers["w2"].silence(err)
			if rec := s.call(t, "GET", path, ""); rec.Code != http.StatusServiceUnavailable {
				t.Errorf("%v: status %d", err, rec.Code)
			}
		}
	})
}

func TestEvents(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w2", "web", bourse.StateStarted)
	path := "/v1/apps/shop/machines/" + string(m.ID) + "/events"
	w := s.workers["w2"]
	w.mu.Lock()
	for range machinesapi.MaxEvents {
		w.enter(w.machines[m.ID], bourse.EventRestart, bourse.StateStarted, bourse.SourceUser)
	}
	w.mu.Unlock()
	for query, want := range map[string]int{"": 20, "?limit=3": 3, "?limit=5000": machinesapi.MaxEvents} {
		got := decodeBody[[]machinesapi.Event](t, s.call(t, "GET", path+query, "").Body.Bytes())
		if len(got) != want || got[0].Type != bourse.EventRestart || got[0].Timestamp == 0 {
			t.Errorf("GET events%s: %d of %+v, want %d", query, len(got), got[0], want)
		}
	}
}
