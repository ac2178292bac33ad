package broker_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
)

// wanderer is a directory in which one worker leaves or returns after each read.
type wanderer struct {
	*cluster
	id bourse.WorkerID

	flip sync.Mutex
	away bool
}

func (d *wanderer) All() (here []bourse.Member, away []bourse.Absence) {
	d.flip.Lock()
	defer d.flip.Unlock()
	for _, m := range d.members {
		if m.ID == d.id && d.away {
			away = append(away, bourse.Absence{Member: m, Since: time.Now()})
		} else {
			here = append(here, m)
		}
	}
	d.away = !d.away
	return here, away
}

func (d *wanderer) Workers() []bourse.Member {
	here, _ := d.All()
	return here
}

func (d *wanderer) ByTag(tag bourse.WorkerTag) (bourse.Member, bool) {
	here, _ := d.All()
	i := slices.IndexFunc(here, func(m bourse.Member) bool { return m.Tag == tag })
	if i < 0 {
		return bourse.Member{}, false
	}
	return here[i], true
}

// TestMachinesOfOtherWorkersAreIgnored covers a worker that wrongly claims to have another worker's machine and volume
// for an app. They must not be listed for that app, and must not be destroyed with it.
func TestMachinesOfOtherWorkersAreIgnored(t *testing.T) {
	s := start(t)
	mine := s.machine(t, "w1", "a", bourse.StateStarted)
	theirs := s.workers["w3"].add(bourse.Order{ID: bourse.NewOrderID(), App: s.app(t, "theirs", "personal"), Config: mine.Config}, bourse.StateStarted)
	lie := theirs
	lie.App, lie.AppID = mine.App, mine.AppID
	w := s.workers["w1"]
	for _, worker := range []bourse.WorkerID{"w3", "w1"} {
		lie.Worker = worker
		w.mu.Lock()
		w.machines[lie.ID] = &lie
		w.mu.Unlock()
		for _, path := range []string{"/v1/apps/shop/machines", "/v1/apps/shop/machines?include_deleted=true"} {
			if rec := s.call(t, "GET", path, ""); rec.Code != http.StatusOK || strings.Contains(rec.Body.String(), string(lie.ID)) {
				t.Errorf("GET %s: status %d: %s", path, rec.Code, rec.Body)
			}
		}
	}
	if rec := s.call(t, "DELETE", "/v1/apps/shop?force=true", ""); rec.Code != http.StatusAccepted {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
	if got := s.workers["w3"].machines[theirs.ID].State; got != bourse.StateStarted {
		t.Errorf("another app's machine is %s", got)
	}
}

// TestWorkerLeavesDuringLookup checks that an object is never reported as missing because its
// worker returned or left during the lookup. Either the object is found, or its worker cannot be
// reached.
func TestWorkerLeavesDuringLookup(t *testing.T) {
	begin := func(t *testing.T, away bool) (*setup, bourse.Machine) {
		var d *wanderer
		s := start(t, func(config *broker.Config) {
			d = &wanderer{cluster: config.Directory.(*cluster), id: "w1", away: away} //nolint:forcetypeassert // start's
			config.Directory = d
		})
		return s, s.machine(t, "w1", "a", bourse.StateStarted)
	}
	for _, away := range []bool{false, true} {
		s, m := begin(t, away)
		for range 2 { // the second time, the worker changes its state one lookup later
			for _, path := range []string{"/v1/apps/shop/machines/" + string(m.ID), "/v1/workers/w1", "/v1/workers/w1/runs"} {
				if rec := s.call(t, "GET", path, ""); rec.Code != http.StatusOK && rec.Code != http.StatusServiceUnavailable {
					t.Errorf("GET %s: status %d: %s", path, rec.Code, rec.Body)
				}
			}
			list, err := s.client(t).Workers(t.Context())
			if n := slices.ContainsFunc(list, func(w machinesapi.Worker) bool { return w.ID == "w1" }); err != nil || !n || len(list) != 3 {
				t.Errorf("the workers are %+v, %v", list, err)
			}
			if _, err := s.client(t).Health(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	for _, away := range []bool{false, true} {
		for looks := range 2 {
			s, m := begin(t, away)
			for range looks {
				_ = s.call(t, "GET", "/v1/workers/w1", "")
			}
			rec := s.call(t, "DELETE", "/v1/apps/shop?force=true", "")
			destroyed := s.workers["w1"].machines[m.ID].State == bourse.StateDestroyed
			if named := strings.Contains(rec.Header().Get(machinesapi.HeaderUnreachable), "w1"); rec.Code == http.StatusAccepted && !destroyed && !named {
				t.Errorf("the app was deleted without its machine on w1, and the reply does not mention this: %v", rec.Header())
			}
		}
	}
}
