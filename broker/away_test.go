package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

var noon = time.Date(2026, 3, 4, 12, 1, 0, 0, time.UTC)

// take makes a worker absent. If leaving is set, the worker was stopped; otherwise it is down.
func (s *setup) take(id bourse.WorkerID, leaving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.members {
		if m.ID == id {
			m.Leaving = leaving
			s.absent = append(s.absent, bourse.Absence{Member: m, Since: noon})
			s.members = append(s.members[:i:i], s.members[i+1:]...)
			return
		}
	}
}

// TestAbsentWorkers checks that absent workers are listed, with the time since which they have been
// absent and the number of their objects.
func TestAbsentWorkers(t *testing.T) {
	s := start(t)
	s.take("w1", false)
	s.take("w2", true)
	s.view.mu.Lock()
	s.view.away = []inventory.UnreachableWorker{{ID: "w1", HeardAt: noon.Add(-time.Minute), Machines: 3, Volumes: 1}, {ID: "w2"}}
	s.view.mu.Unlock()
	client := s.client(t)
	got, err := client.Workers(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatalf("%d workers, %v", len(got), err)
	}
	if w := got[0]; w.ID != "w1" || w.Status != machinesapi.WorkerDown || !w.Since.Equal(noon.Add(-time.Minute)) || w.Earlier || w.Machines != 3 || w.Volumes != 1 {
		t.Errorf("w1 is %+v", w)
	}
	if w := got[1]; w.ID != "w2" || w.Status != machinesapi.WorkerStopped || !w.Since.Equal(noon) || !w.Earlier {
		t.Errorf("w2, whose departure this broker has not observed, is %+v", w)
	}
	one, err := client.Worker(t.Context(), "w1")
	if err != nil || one.Status != machinesapi.WorkerDown || one.Machines != 3 {
		t.Errorf("w1 is %+v, %v", one, err)
	}
	for id, want := range map[bourse.WorkerID]string{
		"w1": "worker w1 is DOWN since 2026-03-04T12:00:00Z", "w2": "worker w2 has stopped, since before 2026-03-04T12:01:00Z",
	} {
		if _, err := client.Runs(t.Context(), id, false); bourse.CodeOf(err) != bourse.CodeUnavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("runs of %s: %v, want %q", id, err, want)
		}
	}
}

// TestHealthWithoutWorkers checks that a broker is unhealthy if it cannot reach any worker, but healthy if its cluster
// has no workers yet.
func TestHealthWithoutWorkers(t *testing.T) {
	s := start(t)
	client := s.client(t)
	s.take("w1", false)
	s.take("w2", false)
	if h, err := client.Health(t.Context()); err != nil || h.Workers != 1 {
		t.Errorf("with one reachable worker: %+v, %v", h, err)
	}
	s.take("w3", true)
	_, err := client.Health(t.Context())
	if bourse.CodeOf(err) != bourse.CodeUnavailable || !strings.Contains(err.Error(), "this broker cannot reach any worker: all 3 workers of the cluster are down or stopped") {
		t.Errorf("with no reachable workers: %v", err)
	}
	s.mu.Lock()
	s.absent = nil
	s.mu.Unlock()
	if h, err := client.Health(t.Context()); err != nil || h.Workers != 0 {
		t.Errorf("in a cluster without workers: %+v, %v", h, err)
	}
}
