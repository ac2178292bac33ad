package broker_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

const heardAt = "2026-03-04T12:00:00Z" // when the broker last heard from each worker, according to the fake view

func (s *setup) asked(call string) int {
	n := 0
	for _, w := range s.workers {
		n += w.called(call)
	}
	return n
}

// machines returns the list of app "shop". query is appended to the path.
func (s *setup) machines(t testing.TB, query string) []machinesapi.Machine {
	t.Helper()
	return s.listed(t, "/v1/apps/shop/machines"+query)
}

// viewed returns the list for all apps, which the broker produces without asking workers. query is appended to the
// path.
func (s *setup) viewed(t testing.TB, query string) []machinesapi.Machine {
	t.Helper()
	return s.listed(t, "/v1/machines"+query)
}

func (s *setup) listed(t testing.TB, path string) []machinesapi.Machine {
	t.Helper()
	rec := s.call(t, "GET", path, "")
	if rec.Code != http.StatusOK {
		t.Fatalf("GET %s: status %d: %s", path, rec.Code, rec.Body)
	}
	return decodeBody[[]machinesapi.Machine](t, rec.Body.Bytes())
}

func TestListAsksNoWorker(t *testing.T) {
	s := start(t)
	s.machine(t, "w1", "a", bourse.StateStarted)
	s.machine(t, "w3", "b", bourse.StateStarted)
	for _, path := range []string{"/v1/apps", "/v1/apps/shop", "/v1/machines", "/v1/apps/shop/machines?summary=true"} {
		if rec := s.call(t, "GET", path, ""); rec.Code != 200 || rec.Header().Get("Bourse-Unreachable") != "" {
			t.Errorf("GET %s: status %d, unreachable %q", path, rec.Code, rec.Header().Get("Bourse-Unreachable"))
		}
	}
	if n := s.asked("machine/list") + s.asked("app/list"); n != 0 {
		t.Errorf("%d calls to workers", n)
	}
}

func TestHostStatus(t *testing.T) {
	s := start(t)
	for i, w := range []bourse.WorkerID{"w1", "w2", "w3"} {
		s.machine(t, w, string(rune('a'+i)), bourse.StateStarted)
	}
	s.view.status = map[bourse.WorkerID]machinesapi.HostStatus{"w2": machinesapi.HostUnreachable, "w3": machinesapi.HostUnknown}
	got := map[string]string{}
	for _, m := range s.machines(t, "") {
		got[m.Name] = string(m.HostStatus) + " " + m.HostHeard
	}
	if diff := cmp.Diff(map[string]string{"a": "ok ", "b": "unreachable " + heardAt, "c": "unknown " + heardAt}, got); diff != "" {
		t.Errorf("host status (-want +got):\n%s", diff)
	}
}

// TestWorkersAreAskedIfTheViewIsIncomplete checks that workers are asked for objects that the view
// does not contain or may not contain.
func TestWorkersAreAskedIfTheViewIsIncomplete(t *testing.T) {
	for name, spoil := range map[string]func(*fakeView){
		"not synced":            func(v *fakeView) { v.unsynced = true },
		"not synced, and empty": func(v *fakeView) { v.unsynced, v.frozen = true, true },
		"cannot be read":        func(v *fakeView) { v.err = errors.New("disk I/O error") },
		"empty":                 func(v *fakeView) { v.frozen = true; clear(v.apps) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.machine(t, "w1", "a", bourse.StateStarted)
			s.machine(t, "w3", "b", bourse.StateStarted)
			s.view.set(spoil)
			if got, _ := s.list(t, ""); !cmp.Equal(got, []string{"a", "b"}) {
				t.Errorf("list is %v", got)
			}
			if got := decodeBody[machinesapi.App](t, s.call(t, "GET", "/v1/apps/shop", "").Body.Bytes()); got.MachineCount != 2 {
				t.Errorf("app is %+v", got)
			}
			list := decodeBody[machinesapi.AppList](t, s.call(t, "GET", "/v1/apps", "").Body.Bytes())
			if list.Total != 1 || list.Apps[0].MachineCount != 2 {
				t.Errorf("apps are %+v", list)
			}
		})
	}
}

// TestAnswersTakePrecedenceOverAnOldView checks that a worker that does not answer is shown as unreachable, whatever an
// unsynced view contains, and that a worker's answer takes precedence over the view.
func TestAnswersTakePrecedenceOverAnOldView(t *testing.T) {
	s := start(t)
	gone := s.machine(t, "w1", "a", bourse.StateStarted)
	s.machine(t, "w2", "b", bourse.StateStarted)
	s.view.freeze()
	s.view.set(func(v *fakeView) { v.unsynced = true })
	s.workers["w1"].add(bourse.Order{App: bourse.App{Name: "shop"}, Name: "c"}, bourse.StateStarted)
	delete(s.workers["w1"].machines, gone.ID)
	s.workers["w2"].silence(errDown)
	got := map[string]machinesapi.HostStatus{}
	for _, m := range s.machines(t, "") {
		got[m.Name] = m.HostStatus
	}
	if diff := cmp.Diff(map[string]machinesapi.HostStatus{"b": "unreachable", "c": "ok"}, got); diff != "" {
		t.Errorf("machines (-want +got):\n%s", diff)
	}
	if _, header := s.list(t, ""); header.Get("Bourse-Unreachable") != "w2" {
		t.Errorf("unreachable: %q", header.Get("Bourse-Unreachable"))
	}
}

func TestDestroyedMachinesComeFromWorkers(t *testing.T) {
	s := start(t)
	s.machine(t, "w1", "a", bourse.StateStarted)
	s.machine(t, "w2", "b", bourse.StateDestroyed)
	s.machine(t, "w3", "c", bourse.StateStarted)
	s.workers["w3"].silence(errDown)
	got, header := s.list(t, "?include_deleted=true")
	if !cmp.Equal(got, []string{"a", "b", "c"}) || header.Get("Bourse-Unreachable") != "w3" {
		t.Errorf("%v, unreachable %q", got, header.Get("Bourse-Unreachable"))
	}
	if got, header := s.list(t, "?include_deleted=true&region=gru"); !cmp.Equal(got, []string{"a", "b"}) || header.Get("Bourse-Unreachable") != "" {
		t.Errorf("of gru: %v, unreachable %q", got, header.Get("Bourse-Unreachable"))
	}
}

// TestRowOfAnotherWorkersMachineIsIgnored checks that a row of the view is ignored if it was not written by the
// machine's worker.
func TestRowOfAnotherWorkersMachineIsIgnored(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "a", bourse.StateStarted)
	s.view.freeze()
	s.view.set(func(v *fakeView) {
		row := v.rows[m.ID]
		row.Worker, row.Name, row.UpdatedAt = "w2", "forged", row.UpdatedAt.Add(time.Hour)
		v.rows["aaaaaa00000001"] = row
		v.rows["aaaaaa00000001"] = inventory.Listed{Machine: func() bourse.Machine { m := row.Machine; m.ID = "aaaaaa00000001"; return m }()}
	})
	if got, _ := s.list(t, ""); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("list is %v", got)
	}
}

// TestMachineOfALostWorker checks that, if a machine's worker is lost or does not answer, the
// machine is shown as the view last received it. Operations on it fail with an error that names the
// worker.
func TestMachineOfALostWorker(t *testing.T) {
	for name, lose := range map[string]func(*setup){
		"no longer a member": func(s *setup) { s.lose("w2") },
		"refuses":            func(s *setup) { s.workers["w2"].silence(errDown) },
		"hangs":              func(s *setup) { s.workers["w2"].silence(errLost) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			m := s.machine(t, "w2", "web", bourse.StateStarted)
			path := "/v1/apps/shop/machines/" + string(m.ID)
			lose(s)
			rec := s.call(t, "GET", path, "")
			got := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
			if rec.Code != 200 || got.ID != m.ID || got.State != "started" || got.HostStatus != "unreachable" || got.HostHeard != heardAt || got.Worker != "w2" {
				t.Errorf("status %d: %+v", rec.Code, got)
			}
			for _, verb := range []string{"POST start", "POST stop", "POST restart", "DELETE ", "GET wait?timeout=1", "GET events", "GET lease", "POST lease", "GET metadata", "GET logs"} {
				method, tail, _ := strings.Cut(verb, " ")
				rec := s.call(t, method, strings.TrimSuffix(path+"/"+tail, "/"), "")
				got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
				if rec.Code != 503 && name != "hangs" || got.Code == "" {
					t.Errorf("%s: status %d: %s", verb, rec.Code, rec.Body)
				}
				if name == "no longer a member" && (!strings.Contains(got.Error, "w2") || !strings.Contains(got.Error, heardAt)) {
					t.Errorf("%s: %s", verb, got.Error)
				}
			}
			if rec := s.call(t, "GET", "/v1/apps/other/machines/"+string(m.ID), ""); rec.Code == 200 {
				t.Errorf("through another app's path: status %d", rec.Code)
			}
		})
	}
	t.Run("a worker that never existed", func(t *testing.T) {
		s := start(t)
		if rec := s.call(t, "GET", "/v1/apps/shop/machines/dddddd00000000", ""); rec.Code != 404 {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
	})
}

// TestDeleteAppCountsLostWorkers checks that an app cannot be deleted while a lost worker may still
// run its machines.
func TestDeleteAppCountsLostWorkers(t *testing.T) {
	s := start(t)
	s.machine(t, "w1", "a", bourse.StateStopped)
	s.machine(t, "w2", "b", bourse.StateStarted)
	s.lose("w2")
	if rec := s.call(t, "DELETE", "/v1/apps/shop", ""); rec.Code != 503 || !strings.Contains(rec.Body.String(), "w2") || s.asked("destroy") != 0 {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
	if rec := s.call(t, "DELETE", "/v1/apps/shop?force=true", ""); rec.Code != 202 || rec.Header().Get("Bourse-Unreachable") != "w2" {
		t.Errorf("forced: status %d, unreachable %q", rec.Code, rec.Header().Get("Bourse-Unreachable"))
	}
}

// TestSecondLookupOfAnApp checks that an app that was created through another broker a moment ago
// is found on the workers, and that requests for missing apps do not overload the workers.
func TestSecondLookupOfAnApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		s.app(t, "shop", "personal")
		s.view.wipe()
		if rec := s.call(t, "GET", "/v1/apps/shop", ""); rec.Code != 200 {
			t.Errorf("status %d: %s", rec.Code, rec.Body)
		}
		before := s.asked("app/list")
		for range 1000 {
			if rec := s.call(t, "POST", "/v1/apps/none/machines", `{"config":`+hostConfig+`}`); rec.Code != 404 {
				t.Fatalf("status %d: %s", rec.Code, rec.Body)
			}
			time.Sleep(time.Millisecond)
		}
		if n := (s.asked("app/list") - before) / len(s.workers); n < 10 || n > 25 {
			t.Errorf("%d lookups in a second", n)
		}
	})
}

// TestInvariant8TheViewIsAHint checks that an outdated, wrong or unreadable view never hides the
// state of a single machine, and does not affect orders.
func TestInvariant8TheViewIsAHint(t *testing.T) {
	for name, spoil := range map[string]func(*fakeView){
		"wiped": func(v *fakeView) { v.frozen = true; clear(v.rows); clear(v.apps) },
		"old":   func(v *fakeView) { v.copy(); v.frozen = true },
		"shows all hosts as lost": func(v *fakeView) {
			v.status = map[bourse.WorkerID]machinesapi.HostStatus{"w1": "unreachable", "w2": "unreachable", "w3": "unreachable"}
		},
		"cannot be read": func(v *fakeView) { v.err = errors.New("database disk image is malformed") },
		"contains wrong rows": func(v *fakeView) {
			v.copy()
			v.frozen = true
			for id, l := range v.rows {
				l.App, l.State, l.HostStatus, l.Worker, l.UpdatedAt = "other", "melted", "?", "w9", time.Now().Add(time.Hour)
				v.rows[id] = l
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			m := s.machine(t, "w1", "a", bourse.StateStarted)
			s.view.set(spoil)
			path := "/v1/apps/shop/machines/" + string(m.ID)
			if got := decodeBody[machinesapi.Machine](t, s.call(t, "GET", path, "").Body.Bytes()); got.Name != "a" || got.State != "started" || got.HostStatus != "ok" {
				t.Errorf("machine is %+v", got)
			}
			if rec := s.call(t, "POST", path+"/stop", ""); rec.Code != 200 {
				t.Errorf("stop: status %d: %s", rec.Code, rec.Body)
			}
			rec := s.call(t, "POST", "/v1/apps/shop/machines", `{"region":"mad","config":`+hostConfig+`}`)
			if made := decodeBody[machinesapi.Machine](t, rec.Body.Bytes()); rec.Code != 200 || made.Region != "mad" || made.Worker != "w3" {
				t.Errorf("create: status %d: %s", rec.Code, rec.Body)
			}
			states := map[bourse.State]int{}
			for _, m := range s.machines(t, "") {
				states[m.State]++
			}
			if states["stopped"] != 1 || states["started"] != 1 || len(states) != 2 {
				t.Errorf("the list contains states %v", states)
			}
		})
	}
}
