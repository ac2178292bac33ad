package broker_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// withSecrets adds a machine whose config contains private parts, which a real view does not
// contain.
func withSecrets(t *testing.T, s *setup, w bourse.WorkerID, name string) bourse.Machine {
	t.Helper()
	app := s.app(t, "shop", "personal")
	return s.workers[w].add(bourse.Order{ID: bourse.NewOrderID().In(app.ID), App: app, Name: name, Config: bourse.Config{
		Image: "host", Init: bourse.Init{Exec: []string{"sleep", "60"}}, Env: map[string]string{"PASSWORD": "hunter2"},
		Files: []bourse.File{{GuestPath: "/a", RawValue: []byte("x")}},
	}}, bourse.StateStarted)
}

// TestListHasWholeConfigs checks that a list contains complete configs, because a client may modify a listed config and
// send it back. If a machine's worker does not answer, the config is marked as incomplete.
func TestListHasWholeConfigs(t *testing.T) {
	s := start(t)
	s.view.public = true
	a, b := withSecrets(t, s, "w1", "a"), withSecrets(t, s, "w2", "b")
	list := func(path string) map[bourse.MachineID]machinesapi.Machine {
		t.Helper()
		rec := s.call(t, "GET", path, "")
		if rec.Code != http.StatusOK {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		out := map[bourse.MachineID]machinesapi.Machine{}
		for _, m := range decodeBody[[]machinesapi.Machine](t, rec.Body.Bytes()) {
			out[m.ID] = m
		}
		return out
	}
	whole := func(m machinesapi.Machine, of bourse.Machine) {
		t.Helper()
		if m.Config == nil || m.IncompleteConfig != nil || m.HostStatus != machinesapi.HostOK {
			t.Fatalf("machine %s is %+v", m.Name, m.Detail)
		}
		if !cmp.Equal(m.Config.Env, of.Config.Env) || !cmp.Equal(m.Config.Files, of.Config.Files) {
			t.Errorf("machine %s has env %v and files %v", m.Name, m.Config.Env, m.Config.Files)
		}
	}
	cut := func(m machinesapi.Machine, status machinesapi.HostStatus) {
		t.Helper()
		if m.Config != nil || m.HostStatus != status {
			t.Fatalf("machine %s is %+v", m.Name, m.Detail)
		}
		if c := m.IncompleteConfig; c == nil || c.Image != "host" || c.Guest == nil || c.Env != nil || c.Files != nil {
			t.Errorf("machine %s has the incomplete config %+v", m.Name, c)
		}
	}
	const path = "/v1/apps/shop/machines"
	got := list(path)
	whole(got[a.ID], a)
	whole(got[b.ID], b)

	got = list("/v1/machines")
	cut(got[a.ID], machinesapi.HostOK)

	s.workers["w2"].silence(errLost)
	got = list(path)
	whole(got[a.ID], a)
	cut(got[b.ID], machinesapi.HostUnreachable)
	got = map[bourse.MachineID]machinesapi.Machine{b.ID: decodeBody[machinesapi.Machine](t, s.call(t, "GET", path+"/"+string(b.ID), "").Body.Bytes())}
	cut(got[b.ID], machinesapi.HostUnreachable)
	s.workers["w2"].silence(nil)
}

// TestListAsksOnlyOwners checks that only workers with matching machines are asked, and that no worker is asked for a
// summary.
func TestListAsksOnlyOwners(t *testing.T) {
	s := start(t)
	s.view.public = true
	withSecrets(t, s, "w1", "a")
	withSecrets(t, s, "w3", "c")
	for path, want := range map[string]map[bourse.WorkerID]int{
		"/v1/apps/shop/machines?region=mad":   {"w3": 1},
		"/v1/apps/shop/machines?summary=true": {},
		"/v1/apps/shop/machines":              {"w1": 1, "w3": 1},
		"/v1/machines":                        {},
	} {
		before := map[bourse.WorkerID]int{}
		for id, w := range s.workers {
			before[id] = w.called("machine/list")
		}
		s.call(t, "GET", path, "")
		got := map[bourse.WorkerID]int{}
		for id, w := range s.workers {
			if n := w.called("machine/list") - before[id]; n > 0 {
				got[id] = n
			}
		}
		if !cmp.Equal(got, want) {
			t.Errorf("GET %s asked %v, want %v", path, got, want)
		}
	}
}
