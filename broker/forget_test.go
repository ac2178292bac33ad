package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// TestForgetWorker checks that an absent worker can be removed together with its objects, and that
// a member cannot be removed.
func TestForgetWorker(t *testing.T) {
	s := start(t)
	client := s.client(t)
	if _, err := client.Operator().Forget(t.Context(), "w1"); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "worker w1 is running: stop it first") {
		t.Errorf("a member: %v", err)
	}
	if _, err := client.Operator().Forget(t.Context(), "w9"); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("an unknown worker: %v", err)
	}
	s.take("w1", false)
	s.view.set(func(v *fakeView) { v.away = []inventory.AwayWorker{{ID: "w1", HeardAt: noon, Machines: 3}} })
	w, err := client.Operator().Forget(t.Context(), "w1")
	if err != nil || w.Machines != 3 || w.Status != machinesapi.WorkerDown {
		t.Errorf("an absent worker: %+v, %v", w, err)
	}
	if f := s.view.forgot; len(f) != 1 || f[0].ID != "w1" || f[0].Tag != 0xaaaaaa || f[0].Region != "gru" {
		t.Errorf("the view received %+v", f)
	}
}

// TestObjectsOfARemovedWorker checks that a removed worker's objects are not found, and that
// destroying them with force succeeds. Orders do not wait for the worker, and its objects are not
// counted.
func TestObjectsOfARemovedWorker(t *testing.T) {
	s := start(t)
	s.absent = []bourse.Absence{{Member: bourse.Member{ID: "w9", Role: bourse.RoleWorker, Region: "gru", Tag: 0xdddddd}, Since: time.Now(), Forgotten: true}}
	const id = "/v1/apps/default/machines/dddddd00000001"
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", id, http.StatusNotFound},
		{"DELETE", id, http.StatusNotFound},
		{"DELETE", id + "?force=true", http.StatusOK},
		{"GET", "/v1/workers/w9", http.StatusNotFound},
		{"GET", "/v1/apps/default/volumes/" + string(bourse.NewVolumeID(0xdddddd)), http.StatusNotFound},
		{"GET", "/v1/orders/" + string(bourse.NewOrderID()), http.StatusNotFound},
		{"GET", "/v1/health", http.StatusOK},
	} {
		if rec := s.call(t, c.method, c.path, ""); rec.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, rec.Code, c.want, rec.Body)
		}
	}
	s.absent[0].Forgotten = false
	if rec := s.call(t, "DELETE", id+"?force=true", ""); rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), "the machine cannot be destroyed now: its worker w9 has been unreachable since") {
		t.Errorf("while it is only absent: %d %s", rec.Code, rec.Body)
	}
}

// TestOnlyOperatorsRemoveWorkers checks that a worker can be removed only with a token for the
// whole cluster.
func TestOnlyOperatorsRemoveWorkers(t *testing.T) {
	s := start(t, func(c *broker.Config) { c.Tokens = tokenMap{"one": {Name: "acme", Org: "acme"}, "all": {Name: "*"}} })
	s.take("w1", false)
	for token, want := range map[string]int{"": http.StatusUnauthorized, "one": http.StatusForbidden, "all": http.StatusOK} {
		if rec := s.call(t, "DELETE", "/v1/workers/w1", "", "Authorization", "Bearer "+token); rec.Code != want {
			t.Errorf("token %q: %d, want %d: %s", token, rec.Code, want, rec.Body)
		}
	}
}
