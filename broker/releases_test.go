package broker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// TestReleases sends the requests that a client sends during a deployment.
func TestReleases(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "acme")
	s.app(t, "other", "acme")
	const path = "/v1/apps/shop/releases"
	ann := []string{"Authorization", "Bearer acme"}
	if rec := s.call(t, "GET", path+"/current", "", ann...); rec.Code != http.StatusNotFound {
		t.Errorf("current without releases: %d %s", rec.Code, rec.Body)
	}
	rec := s.call(t, "POST", path, `{"strategy":"ROLLING\u001b[2J","image_ref":"nginx:1","definition":{"app":"shop"}}`, ann...)
	first := decodeBody[release.Release](t, rec.Body.Bytes())
	if rec.Code != http.StatusCreated || first.Version != 1 || first.Status != release.Pending || first.User != "ann@acme" || first.Strategy != "rolling[2j" {
		t.Fatalf("created: %d %s", rec.Code, rec.Body)
	}
	one := path + "/" + string(first.ID)
	if rec := s.call(t, "PATCH", one, `{"status":"complete","metadata":{"took":3}}`, ann...); rec.Code != http.StatusOK {
		t.Errorf("patch: %d %s", rec.Code, rec.Body)
	}
	got := decodeBody[release.Release](t, s.call(t, "GET", path+"/current", "", ann...).Body.Bytes())
	if got.ID != first.ID || got.Status != release.Complete || string(got.Metadata) != `{"took":3}` || string(got.Definition) != `{"app":"shop"}` {
		t.Errorf("current is %+v", got)
	}
	for _, path := range []string{one[:len(one)-1], "/v1/apps/other/releases/" + string(first.ID)} { // another app's release must not be found
		if rec := s.call(t, "PATCH", path, `{"status":"failed"}`, ann...); rec.Code != http.StatusNotFound {
			t.Errorf("PATCH %s: %d %s", path, rec.Code, rec.Body)
		}
	}
	for _, body := range []string{`{"status":"done"}`, `[]`, ``, `{"status":7}`} {
		if rec := s.call(t, "PATCH", one, body, ann...); rec.Code != http.StatusBadRequest {
			t.Errorf("PATCH %s: %d %s", body, rec.Code, rec.Body)
		}
	}
	for _, path := range []string{"/v1/apps/shop", "/v1/apps"} {
		if rec := s.call(t, "GET", path, "", ann...); !strings.Contains(rec.Body.String(), `"name":"shop","internal_numeric_id":`) || !strings.Contains(rec.Body.String(), `"status":"suspended"`) {
			t.Errorf("GET %s: a deployed app without machines: %s", path, rec.Body)
		}
	}
	if rec := s.call(t, "DELETE", "/v1/apps/shop", "", ann...); rec.Code != http.StatusAccepted || len(s.view.releases) != 0 {
		t.Errorf("delete the app: %d, and %d releases remain", rec.Code, len(s.view.releases))
	}
}

// TestReleasesAreLimited checks that the oldest releases are deleted, and that no version is
// reused.
func TestReleasesAreLimited(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "acme")
	const more = 3
	for i := range tenant.KeptReleases + more {
		rec := s.call(t, "POST", "/v1/apps/shop/releases", fmt.Sprintf(`{"status":"complete","description":"%d"}`, i+1))
		if rec.Code != http.StatusCreated {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
	}
	list := decodeBody[machinesapi.ReleaseList](t, s.call(t, "GET", "/v1/apps/shop/releases", "").Body.Bytes()).Releases
	if len(list) != tenant.KeptReleases || list[0].Version != tenant.KeptReleases+more || list[len(list)-1].Version != more+1 {
		t.Errorf("%d releases, versions %d to %d", len(list), list[0].Version, list[len(list)-1].Version)
	}
	for _, r := range list {
		if r.Description != fmt.Sprint(r.Version) {
			t.Errorf("version %d belongs to release number %s", r.Version, r.Description)
		}
	}
	if list := decodeBody[machinesapi.ReleaseList](t, s.call(t, "GET", "/v1/apps/shop/releases?limit=2", "").Body.Bytes()).Releases; len(list) != 2 {
		t.Errorf("a list limited to 2 releases has %d", len(list))
	}
}

// TestReleasesOfKilledClients checks that a release whose client was killed becomes interrupted once a later release is
// running. Releases waiting for their turn are not affected.
func TestReleasesOfKilledClients(t *testing.T) {
	s := start(t)
	s.app(t, "shop", "acme")
	const path = "/v1/apps/shop/releases"
	var ids []string
	for range 4 {
		ids = append(ids, string(decodeBody[release.Release](t, s.call(t, "POST", path, `{}`).Body.Bytes()).ID))
	}
	for _, change := range []struct {
		of   int
		to   release.Status
		want string // expected statuses, oldest release first
	}{
		{0, release.Complete, "complete pending pending pending"},
		{1, release.Running, "complete running pending pending"},
		{3, release.Failed, "complete running pending failed"}, // this release did not get the leases
		{2, release.Running, "complete interrupted running failed"},
		{2, release.Complete, "complete interrupted complete failed"},
	} {
		if rec := s.call(t, "PATCH", path+"/"+ids[change.of], fmt.Sprintf(`{"status":%q}`, change.to)); rec.Code != http.StatusOK {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		got := ""
		for _, r := range decodeBody[machinesapi.ReleaseList](t, s.call(t, "GET", path, "").Body.Bytes()).Releases {
			got = strings.TrimSpace(string(r.Status) + " " + got)
		}
		if got != change.want {
			t.Errorf("after release %d was %s: %s, want %s", change.of, change.to, got, change.want)
		}
	}
}

func FuzzCreateRelease(f *testing.F) {
	fuzzBody(f, "POST", "/v1/apps/default/releases", func(t *testing.T, s *setup) {
		for _, r := range s.view.releases {
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	}, `{"status":"running","definition":{"a":[1]},"metadata":{}}`)
}
