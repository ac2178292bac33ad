package broker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// TestRemoveMember checks which servers can be removed: servers that are not running and, with force, running and
// unknown servers that can be locked out. The broker that handles the request cannot be removed.
func TestRemoveMember(t *testing.T) {
	s := start(t, func(c *broker.Config) {
		workers := c.Directory
		c.Self, c.LockOut = "b1", true
		c.Members = func() []bourse.Member {
			return append(workers.Workers(), bourse.Member{ID: "b1", Role: bourse.RoleBroker}, bourse.Member{ID: "p1", Role: bourse.RoleProxy, Region: "gru"})
		}
	})
	remove := s.client(t).Operator().RemoveMember
	for _, c := range []struct {
		id    bourse.WorkerID
		force bool
		code  bourse.Code
		text  string
	}{
		{"w1", false, bourse.CodeFailedPrecondition, "worker w1 is running: stop it first, or use force to lock it out"},
		{"p1", false, bourse.CodeFailedPrecondition, "proxy p1 is running"},
		{"b1", true, bourse.CodeFailedPrecondition, "use another broker"},
		{"w9", false, bourse.CodeNotFound, "w9"},
	} {
		if _, err := remove(t.Context(), c.id, c.force); bourse.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s, force %v: %v, want %s with %q", c.id, c.force, err, c.code, c.text)
		}
	}
	s.take("w1", false)
	s.view.set(func(v *fakeView) { v.away = []inventory.UnreachableWorker{{ID: "w1", HeardAt: noon, Machines: 3}} })
	m, err := remove(t.Context(), "w1", false)
	if err != nil || m.Machines != 3 || m.Status != machinesapi.MemberDown {
		t.Errorf("remove an absent worker: %+v, %v", m, err)
	}
	for _, id := range []bourse.WorkerID{"p1", "w9"} {
		if _, err := remove(t.Context(), id, true); err != nil {
			t.Errorf("%s with force: %v", id, err)
		}
	}
	want := []inventory.RemovedMember{
		{ID: "w1", Role: bourse.RoleWorker, Region: "gru", Tag: 0xaaaaaa, At: noon},
		{ID: "p1", Role: bourse.RoleProxy, Region: "gru", At: noon},
		{ID: "w9", At: noon},
	}
	if diff := cmp.Diff(want, s.view.removed); diff != "" {
		t.Errorf("the view received (-want +got)\n%s", diff)
	}
}

// TestRunningServersStayWithoutCertificates checks that, in a cluster without certificates, running servers cannot be
// removed, because they would rejoin immediately.
func TestRunningServersStayWithoutCertificates(t *testing.T) {
	s := start(t)
	_, err := s.client(t).Operator().RemoveMember(t.Context(), "w1", true)
	if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "without certificates, it cannot be locked out") {
		t.Errorf("got %v", err)
	}
}

// statuses returns the id, role and status of each member.
func (s *setup) statuses(t *testing.T) (out []string) {
	t.Helper()
	list, err := s.client(t).Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		out = append(out, fmt.Sprint(m.ID, " ", m.Role, " ", m.Status))
	}
	return out
}

// TestMembers checks that the list contains running, absent and removed servers.
func TestMembers(t *testing.T) {
	s := start(t)
	s.take("w1", true)
	s.view.set(func(v *fakeView) {
		v.removed = []inventory.RemovedMember{{ID: "old", Role: bourse.RoleProxy, Region: "mad", At: noon}, {ID: "w2", Role: bourse.RoleWorker, At: noon, Returned: true}}
	})
	if got, want := s.statuses(t), []string{"old proxy removed", "w1 worker stopped", "w2 worker ok", "w3 worker ok"}; !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestDownProxies checks that a proxy that is down is listed until its certificate expires, and that it can be removed
// without force, like a worker that is down.
func TestDownProxies(t *testing.T) {
	running := []bourse.Member{{ID: "b1", Role: bourse.RoleBroker}, {ID: "p1", Role: bourse.RoleProxy, Region: "gru"}}
	now := noon
	s := start(t, func(c *broker.Config) {
		c.Self, c.LockOut, c.Now = "b1", true, func() time.Time { return now }
		c.Members = func() []bourse.Member { return running }
	})
	proxy := func(id bourse.WorkerID, life time.Duration) inventory.CertifiedMember {
		return inventory.CertifiedMember{
			ID: id, Role: bourse.RoleProxy, Region: "gru", IssuedAt: noon.Add(-time.Hour), ExpiresAt: noon.Add(life), HeardAt: noon.Add(-time.Minute),
		}
	}
	s.take("w1", false)
	s.take("w2", false)
	s.take("w3", false)
	s.absent = nil
	s.view.set(func(v *fakeView) {
		v.members = []inventory.CertifiedMember{proxy("p1", time.Hour), proxy("p2", time.Hour), proxy("p3", time.Minute)}
	})
	if got, want := s.statuses(t), []string{"b1 broker ok", "p1 proxy ok", "p2 proxy down", "p3 proxy down"}; !cmp.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	now = noon.Add(time.Minute)
	m, err := s.client(t).Operator().RemoveMember(t.Context(), "p2", false)
	want := machinesapi.Member{ID: "p2", Role: bourse.RoleProxy, Region: "gru", Status: machinesapi.MemberDown, Since: noon.Add(-time.Minute)}
	if diff := cmp.Diff(want, m); diff != "" || err != nil {
		t.Errorf("removed: %v (-want +got)\n%s", err, diff)
	}
	if got, want := s.statuses(t), []string{"b1 broker ok", "p1 proxy ok", "p2 proxy removed"}; !cmp.Equal(got, want) {
		t.Errorf("after a removal and an expiry: %q, want %q", got, want)
	}
	running = running[:1]
	if got, want := s.statuses(t), []string{"b1 broker ok", "p1 proxy down", "p2 proxy removed"}; !cmp.Equal(got, want) {
		t.Errorf("after another proxy has stopped: %q, want %q", got, want)
	}
}

// TestObjectsOfARemovedWorker checks that, after a worker is removed, its objects are not found, but destroying them
// with force succeeds. Orders do not wait for the worker, and the cluster's health does not include it.
func TestObjectsOfARemovedWorker(t *testing.T) {
	s := start(t)
	s.absent = []bourse.Absence{{Member: bourse.Member{ID: "w9", Role: bourse.RoleWorker, Region: "gru", Tag: 0xdddddd}, Since: time.Now(), Removed: true}}
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
	s.absent[0].Removed = false
	if rec := s.call(t, "DELETE", id+"?force=true", ""); rec.Code != http.StatusServiceUnavailable || !strings.Contains(rec.Body.String(), "the machine cannot be destroyed now: its worker w9 has been unreachable since") {
		t.Errorf("while the worker is only absent: %d %s", rec.Code, rec.Body)
	}
}

// TestOnlyOperatorsRemoveMembers checks that only a token for the whole cluster can remove a server.
func TestOnlyOperatorsRemoveMembers(t *testing.T) {
	s := start(t, func(c *broker.Config) { c.Tokens = tokenMap{"one": {Name: "acme", Org: "acme"}, "all": {Name: "*"}} })
	s.take("w1", false)
	for token, want := range map[string]int{"": http.StatusUnauthorized, "one": http.StatusForbidden, "all": http.StatusOK} {
		if rec := s.call(t, "DELETE", "/v1/members/w1", "", "Authorization", "Bearer "+token); rec.Code != want {
			t.Errorf("token %q: %d, want %d: %s", token, rec.Code, want, rec.Body)
		}
	}
}
