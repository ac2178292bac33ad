package broker_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestOrgMachinesInPages checks that the pages of an organization's list together contain each of
// its machines once, and no machine of another organization.
func TestOrgMachinesInPages(t *testing.T) {
	s := start(t, withTokens)
	shop, other := s.app(t, "shop", "acme"), s.app(t, "kiosk", "acme")
	zoo := s.app(t, "zoo", "zoological")
	var want []string
	for i := range 7 {
		app, w := []bourse.App{shop, other}[i%2], s.members[i%3].ID
		s.workers[w].add(bourse.Order{ID: bourse.NewOrderID(), App: app, Name: fmt.Sprint("m", i), Config: bourse.Config{Image: "host", Env: map[string]string{"A": "secret"}}}, bourse.StateStarted)
		want = append(want, fmt.Sprint("m", i))
	}
	s.workers["w1"].add(bourse.Order{ID: bourse.NewOrderID(), App: zoo, Name: "lion"}, bourse.StateStarted)
	read := func(query string) machinesapi.OrgMachines {
		t.Helper()
		rec := s.call(t, "GET", "/v1/orgs/acme/machines"+query, "", "Authorization", "Bearer acme")
		if rec.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, rec.Code, rec.Body)
		}
		return decodeBody[machinesapi.OrgMachines](t, rec.Body.Bytes())
	}
	var got []string
	pages, query := 0, "?limit=3"
	for {
		page := read(query)
		for _, m := range page.Machines {
			got = append(got, m.Name)
			if m.App == "" || m.Config.Guest.CPUs == 0 || page.LastUpdated == "" {
				t.Errorf("machine %+v", m)
			}
		}
		if pages++; page.NextCursor == "" {
			break
		}
		query = "?limit=3&cursor=" + page.NextCursor
	}
	if slices.Sort(got); pages != 3 || !cmp.Equal(got, want) {
		t.Errorf("%d pages contain %v, want %v", pages, got, want)
	}
	if last := read(""); len(read("?updated_after="+last.LastUpdated).Machines) != 1 {
		t.Errorf("after %s there is more than the last machine", last.LastUpdated)
	}
	if list := read("?region=mad&state=started").Machines; len(list) != 2 {
		t.Errorf("of mad: %+v", list)
	}
	for query, status := range map[string]int{
		"acme?cursor=x": 400, "acme?cursor=zz-": 400, "acme?limit=-1": 400, "acme?limit=a": 400, "acme?updated_after=now": 400, "zoological": 403, "none": 403,
	} {
		if rec := s.call(t, "GET", "/v1/orgs/"+join(query), "", "Authorization", "Bearer acme"); rec.Code != status {
			t.Errorf("%s: status %d, want %d: %s", query, rec.Code, status, rec.Body)
		}
	}
}

// join inserts /machines between an organization's name and an optional query.
func join(s string) string {
	for i := range s {
		if s[i] == '?' {
			return s[:i] + "/machines" + s[i:]
		}
	}
	return s + "/machines"
}

func FuzzPlacements(f *testing.F) {
	fuzzBody(f, "POST", "/v1/platform/placements", func(*testing.T, *setup) {},
		`{"org_slug":"a","region":"gru,any","count":3,"compute":{"cpu_kind":"shared","cpus":1,"memory_mb":256},"volume_size_bytes":9007199254740993,"weights":{"region":50}}`,
		`{"org_slug":"a","count":18446744073709551615}`, `{"org_slug":"a","volume_size_bytes":18446744073709551615}`)
}

// TestReservationsAreReviewed checks that orders with an invalid config can neither reserve capacity nor run a task.
func TestReservationsAreReviewed(t *testing.T) {
	s := start(t)
	body := `{"ttl_seconds":5,"orders":[{"config":{"guest":{"cpus":1,"memory_mb":256},"services":[{"ports":{}}]}}]}`
	if rec := s.call(t, "POST", "/v1/reservations", body); rec.Code != http.StatusBadRequest {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
}

// TestOrgClient checks that the client can read all pages of an organization's machines, and
// request placements.
func TestOrgClient(t *testing.T) {
	s := start(t)
	app := s.app(t, "shop", "acme")
	for _, name := range []string{"one", "two"} {
		s.workers["w1"].add(bourse.Order{ID: bourse.NewOrderID(), App: app, Name: name, Config: bourse.Config{Image: "host"}}, bourse.StateStarted)
	}
	org, ctx := s.client(t).Org("acme"), t.Context()
	first, silent, err := org.Machines(ctx, machinesapi.ListOrgMachines{Region: "gru", States: []bourse.State{bourse.StateStarted, bourse.StateStopped}, Limit: 1})
	if err != nil || len(silent) > 0 || len(first.Machines) != 1 || first.NextCursor == "" {
		t.Fatalf("first page: %+v, %v, %v", first, silent, err)
	}
	second, _, err := org.Machines(ctx, machinesapi.ListOrgMachines{Deleted: true, Cursor: first.NextCursor})
	if err != nil || len(second.Machines) != 1 || second.Machines[0].ID == first.Machines[0].ID || second.NextCursor != "" {
		t.Errorf("second page: %+v, %v", second, err)
	}
	if _, _, err := org.Machines(ctx, machinesapi.ListOrgMachines{Cursor: "x"}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a wrong cursor: %v", err)
	}
	s.workers["w1"].room = 3
	room, err := org.Placements(ctx, machinesapi.PlacementRequest{Region: "gru", Count: 1})
	if err != nil || len(room) != 1 || room[0].Region != "gru" || room[0].Count != 1 {
		t.Errorf("room: %+v, %v", room, err)
	}
	if _, err := org.Placements(ctx, machinesapi.PlacementRequest{Region: "nowhere"}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("room nowhere: %v", err)
	}
}
