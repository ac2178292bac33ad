package broker_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestReadYourWrites checks that a caller who changes a machine through a broker sees the change in the same broker's
// list, even if it is not in the view yet.
func TestReadYourWrites(t *testing.T) {
	for name, c := range map[string]struct {
		call func(t *testing.T, s *setup, path string)
		want func(m *machinesapi.Machine) bool // checks the listed machine; nil: it must not be listed
	}{
		"stop": {
			func(t *testing.T, s *setup, path string) { s.call(t, "POST", path+"/stop", "") },
			func(m *machinesapi.Machine) bool { return m.State == "stopped" },
		},
		"stop and start": {
			func(t *testing.T, s *setup, path string) {
				s.call(t, "POST", path+"/stop", "")
				s.call(t, "POST", path+"/start", "")
			},
			func(m *machinesapi.Machine) bool {
				return m.State == "started" && len(m.Events) >= 4 && m.Events[1].Type == "exit"
			},
		},
		"destroy": {func(t *testing.T, s *setup, path string) { s.call(t, "DELETE", path+"?force=true", "") }, nil},
		"cordon": {
			func(t *testing.T, s *setup, path string) { s.call(t, "POST", path+"/cordon", "") },
			func(m *machinesapi.Machine) bool { return m.Cordoned },
		},
		"metadata": {
			func(t *testing.T, s *setup, path string) {
				s.call(t, "POST", path+"/metadata/k", `{"value":"v"}`)
			},
			func(m *machinesapi.Machine) bool { return m.Known().Metadata["k"] == "v" },
		},
		"lease": {
			func(t *testing.T, s *setup, path string) {
				s.call(t, "POST", path+"/lease", `{"description":"deploy"}`)
			},
			func(m *machinesapi.Machine) bool {
				return m.Lease != nil && m.Lease.Description == "deploy" && m.Nonce == ""
			},
		},
		"lease and release": {
			func(t *testing.T, s *setup, path string) {
				env := decodeBody[machinesapi.LeaseEnvelope](t, s.call(t, "POST", path+"/lease", "").Body.Bytes())
				s.call(t, "DELETE", path+"/lease", "", "fly-machine-lease-nonce", env.Data.Nonce)
			},
			func(m *machinesapi.Machine) bool { return m.Lease == nil },
		},
		"a read after a change through another broker": {
			func(t *testing.T, s *setup, path string) {
				s.stopElsewhere()
				s.call(t, "GET", path, "")
			},
			func(m *machinesapi.Machine) bool { return m.State == "stopped" },
		},
		"a wait after a change through another broker": {
			func(t *testing.T, s *setup, path string) {
				s.stopElsewhere()
				s.call(t, "GET", path+"/wait?state=stopped&timeout=5", "")
			},
			func(m *machinesapi.Machine) bool { return m.State == "stopped" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			m := s.machine(t, "w1", "web", bourse.StateStarted)
			s.view.freeze()
			c.call(t, s, "/v1/apps/shop/machines/"+string(m.ID))
			for range 2 {
				look := s.viewed
				if c.want == nil { // the view contains none of the app's machines, so the broker would ask the workers
					look = s.machines
				}
				list := look(t, "?include_leases=true")
				if c.want == nil && len(list) != 0 || c.want != nil && (len(list) != 1 || !c.want(&list[0])) {
					t.Errorf("the list is %+v", list)
				}
				s.view.catchUp() // the result must stay the same once the view contains the change
			}
			if n := s.asked("machine/list"); n != 0 {
				t.Errorf("%d calls to workers", n)
			}
		})
	}
}

func (s *setup) stopElsewhere() {
	for _, w := range s.workers {
		w.mu.Lock()
		for _, m := range w.machines {
			w.enter(m, bourse.EventExit, bourse.StateStopped, bourse.SourceWorker)
		}
		w.mu.Unlock()
	}
}

// TestANewMachineIsListedAtOnce checks that a new machine is immediately listed and counted,
// exactly once.
func TestANewMachineIsListedAtOnce(t *testing.T) {
	s := start(t)
	old := s.machine(t, "w3", "old", bourse.StateStarted)
	s.view.freeze()
	if rec := s.call(t, "POST", "/v1/apps/shop/machines", `{"name":"new","config":`+hostConfig+`}`); rec.Code != 200 {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	count := func() int64 {
		one := decodeBody[machinesapi.App](t, s.call(t, "GET", "/v1/apps/shop", "").Body.Bytes()).MachineCount
		all := decodeBody[machinesapi.AppList](t, s.call(t, "GET", "/v1/apps", "").Body.Bytes()).Apps[0].MachineCount
		if one != all {
			t.Errorf("counted %d for the app, %d for all apps", one, all)
		}
		return one
	}
	for range 2 {
		if list := s.machines(t, ""); len(list) != 2 || list[1].Name != "new" || list[1].HostStatus != "ok" || count() != 2 {
			t.Errorf("%d machines are counted, the list is %+v", count(), list)
		}
		s.view.catchUp()
	}
	s.call(t, "DELETE", "/v1/apps/shop/machines/"+string(old.ID)+"?force=true", "")
	for range 2 {
		if got := count(); got != 1 {
			t.Errorf("after the destruction, %d machines are counted", got)
		}
		s.view.catchUp()
	}
}

// TestViewReplacesReplies checks that, once the view contains a reply, only the view determines the list. Replies that
// never reach the view expire.
func TestViewReplacesReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		m := s.machine(t, "w1", "web", bourse.StateStarted)
		s.view.freeze()
		path := "/v1/apps/shop/machines/" + string(m.ID)
		s.call(t, "POST", path+"/cordon", "")
		s.view.catchUp()
		s.viewed(t, "")
		s.stopElsewhere()
		s.view.catchUp()
		if list := s.viewed(t, ""); len(list) != 1 || list[0].State != "stopped" {
			t.Errorf("the list is %+v", list)
		}
		s.call(t, "GET", path, "") // a read must not restore a machine that the view has removed
		s.view.set(func(v *fakeView) { clear(v.rows) })
		if list := s.machines(t, ""); len(list) != 0 {
			t.Errorf("after the destruction, the list is %+v", list)
		}
		s.view.catchUp()
		s.call(t, "POST", path+"/start", "")
		time.Sleep(6 * time.Second)
		if list := s.viewed(t, ""); len(list) != 1 || list[0].State != "stopped" {
			t.Errorf("after some seconds the list is %+v", list)
		}
	})
}

// TestQueryWaitsForReplies checks that a query's result contains this broker's recent replies. The
// query waits until the view contains them, but for at most a second, in case a worker publishes
// nothing.
func TestQueryWaitsForReplies(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *setup, path string){
		"run": func(t *testing.T, s *setup, _ string) {
			s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`}`)
		},
		"stop":    func(t *testing.T, s *setup, path string) { s.call(t, "POST", path+"/stop", "") },
		"destroy": func(t *testing.T, s *setup, path string) { s.call(t, "DELETE", path+"?force=true", "") },
		"volume": func(t *testing.T, s *setup, _ string) {
			s.call(t, "POST", "/v1/apps/shop/volumes", `{"name":"data","region":"gru","size_gb":1}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, func(c *broker.Config) { c.Queries = &queries{} })
				m := s.machine(t, "w1", "web", bourse.StateStarted)
				path := "/v1/apps/shop/machines/" + string(m.ID)
				waited := func() time.Duration {
					began := time.Now()
					if rec := s.call(t, "POST", "/v1/view/queries", "a"); rec.Code != 200 {
						t.Errorf("status %d: %s", rec.Code, rec.Body)
					}
					return time.Since(began)
				}
				const news = 300 * time.Millisecond
				s.view.freeze()
				if took := waited(); took != 0 {
					t.Errorf("without changes, the query took %s", took)
				}
				change(t, s, path)
				time.AfterFunc(news, s.view.catchUp)
				if took := waited(); took < news || took > news+50*time.Millisecond {
					t.Errorf("the view caught up after %s, but the query was answered after %s", news, took)
				}
				if took := waited(); took != 0 {
					t.Errorf("after the view had caught up, the query took %s", took)
				}
			})
		})
	}
	t.Run("never", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, func(c *broker.Config) { c.Queries = &queries{} })
			m := s.machine(t, "w1", "web", bourse.StateStarted)
			s.view.freeze()
			s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/stop", "")
			began := time.Now()
			s.call(t, "POST", "/v1/view/queries", "a")
			if took := time.Since(began); took != time.Second {
				t.Errorf("the query was answered after %s", took)
			}
		})
	})
}

// TestConcurrentChangesAndLists changes, reads and lists machines concurrently, mainly for the race detector. No caller
// may see an older version than one that it has already received.
func TestConcurrentChangesAndLists(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "personal")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				rec := s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`}`)
				made := decodeBody[machinesapi.Machine](t, rec.Body.Bytes())
				path := "/v1/apps/shop/machines/" + string(made.ID)
				s.call(t, "POST", path+"/stop", "")
				for _, m := range s.machines(t, "") {
					if m.ID == made.ID && m.State != "stopped" {
						t.Errorf("machine %s was reported as stopped, but is listed as %s", m.ID, m.State)
					}
				}
				s.call(t, "DELETE", path, "")
				for _, m := range s.machines(t, "") {
					if m.ID == made.ID {
						t.Errorf("machine %s was destroyed, but is listed as %s", m.ID, m.State)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for range 50 {
			s.view.freeze()
			s.call(t, "GET", "/v1/apps", "")
			s.view.catchUp()
		}
	})
	wg.Wait()
}
