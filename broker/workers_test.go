package broker_test

import (
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestWorkers(t *testing.T) {
	s := start(t)
	s.workers["w2"].silence(errDown)
	client := s.client(t)
	got, err := client.Workers(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatalf("%d workers, %v", len(got), err)
	}
	if w := got[0]; w.ID != "w1" || w.Tag != "aaaaaa" || w.Status != machinesapi.WorkerOK || w.Facts == nil || w.Facts.Version != "fake" {
		t.Errorf("w1 is %+v", w)
	}
	if w := got[1]; w.ID != "w2" || w.Status != machinesapi.WorkerUnreachable || w.Error == "" || w.Facts != nil {
		t.Errorf("w2 is %+v", w)
	}
	one, err := client.Worker(t.Context(), "w3")
	if err != nil || one.Region != "mad" || one.Facts == nil {
		t.Errorf("w3 is %+v, %v", one, err)
	}
	if _, err := client.Worker(t.Context(), "w9"); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("w9: %v", err)
	}
}

func TestCordon(t *testing.T) {
	s := start(t, func(c *broker.Config) { c.Tokens = tokenMap{"one": {Name: "acme", Org: "acme"}, "all": {Name: "ops"}} })
	for token, want := range map[string]int{"": http.StatusUnauthorized, "one": http.StatusForbidden, "all": http.StatusOK} {
		if rec := s.call(t, "POST", "/v1/workers/w1/cordon", "", "Authorization", "Bearer "+token); rec.Code != want {
			t.Errorf("token %q: %d, want %d: %s", token, rec.Code, want, rec.Body)
		}
	}
	client := s.client(t)
	client.Token = "all"
	if w, err := client.Worker(t.Context(), "w1"); err != nil || w.Facts == nil || w.Facts.Cordon == nil || w.Facts.Cordon.By != "ops" {
		t.Errorf("w1 is %+v, %v; want it cordoned by ops", w, err)
	}
	if w, err := client.Operator().Cordon(t.Context(), "w1", false); err != nil || w.Status != machinesapi.WorkerOK || w.Facts.Cordon != nil {
		t.Errorf("uncordoned: %+v, %v", w, err)
	}
	if _, err := client.Operator().Cordon(t.Context(), "w9", true); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("missing worker: %v", err)
	}
	s.workers["w2"].silence(errDown)
	if _, err := client.Operator().Cordon(t.Context(), "w2", true); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("a silent worker: %v", err)
	}
}

func TestRuns(t *testing.T) {
	s := start(t)
	s.workers["w1"].runs = []fabric.Run{
		{ID: "r1", Definition: "machine.create", Status: "stuck", Step: "boot", Attempt: 3},
		{ID: "r2", Definition: "machine.stop", Status: "done"},
	}
	client := s.client(t)
	runs, err := client.Runs(t.Context(), "w1", false)
	if err != nil || len(runs) != 1 || runs[0].Step != "boot" {
		t.Errorf("runs %+v, %v", runs, err)
	}
	if runs, err := client.Runs(t.Context(), "w1", true); err != nil || len(runs) != 2 {
		t.Errorf("all runs %+v, %v", runs, err)
	}
	if run, err := client.ActOnRun(t.Context(), "w1", "r1", machinesapi.RunRetry); err != nil || run.Status != "running" {
		t.Errorf("retry: %+v, %v", run, err)
	}
	if run, err := client.ActOnRun(t.Context(), "w1", "r1", machinesapi.RunSkip); err != nil || run.Status != "skipped" {
		t.Errorf("skip: %+v, %v", run, err)
	}
	if run, err := client.ActOnRun(t.Context(), "w1", "r1", machinesapi.RunCancel); err != nil || run.Status != "canceled" {
		t.Errorf("cancel: %+v, %v", run, err)
	}
	if _, err := client.ActOnRun(t.Context(), "w1", "r9", machinesapi.RunRetry); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("missing run: %v", err)
	}
	s.workers["w1"].silence(errDown)
	if _, err := client.Runs(t.Context(), "w1", true); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("unresponsive worker: %v", err)
	}
}

func TestPlatform(t *testing.T) {
	s := start(t)
	client := s.client(t)
	regions, err := client.Regions(t.Context())
	if err != nil || len(regions.Regions) != 2 || regions.Regions[0] != (machinesapi.Region{Code: "gru", Name: "São Paulo, Brazil", Workers: 2, GeoRegion: "south_america", Latitude: -23.4, Longitude: -46.5}) || regions.Nearest != "gru" {
		t.Errorf("regions %+v, %v", regions, err)
	}
	// The broker names the nearest region that has workers.
	for at, want := range map[bourse.Region]bourse.Region{"mad": "mad", "fra": "mad", "scl": "gru", "nowhere": "", "": ""} {
		other := start(t, func(c *broker.Config) { c.Region = at })
		if list, err := other.client(t).Regions(t.Context()); err != nil || list.Nearest != want {
			t.Errorf("nearest to %q: %q, %v; want %q", at, list.Nearest, err, want)
		}
	}
	health, err := client.Health(t.Context())
	if err != nil || health != (machinesapi.Health{Status: "ok", Version: "test", Workers: 3}) {
		t.Errorf("health %+v, %v", health, err)
	}
}
