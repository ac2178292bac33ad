package broker_test

import (
	"context"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
)

// tokenMap maps tokens to identities.
type tokenMap map[string]endpoint.Identity

func (t tokenMap) Identify(_ context.Context, token string) (endpoint.Identity, error) {
	if who, ok := t[token]; ok {
		return who, nil
	}
	return endpoint.Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "unknown token")
}

func withTokens(c *broker.Config) {
	c.Tokens = tokenMap{
		"root": {Name: "root"},
		"acme": {Name: "ann@acme", Org: "acme"},
		"shop": {Name: "ci", Apps: []bourse.AppRef{{Name: "shop"}}},
	}
}

func TestPermissions(t *testing.T) {
	const shop, zoo = "/v1/apps/shop", "/v1/apps/zoo"
	create := `{"config":` + hostConfig + `}`
	for _, c := range []struct {
		method, path, body string
		want               map[string]int // expected status for each token; the key "" means no token
	}{
		{"GET", "/v1/health", "", map[string]int{"": 200, "root": 200, "wrong": 200}},
		{"GET", "/v1/platform/regions", "", map[string]int{"": 200, "acme": 200}},
		{"GET", "/v1/apps", "", map[string]int{"": 401, "wrong": 401, "root": 200, "acme": 200, "shop": 200}},
		{"GET", shop, "", map[string]int{"": 401, "wrong": 401, "root": 200, "acme": 200, "shop": 200}},
		{"GET", zoo, "", map[string]int{"": 401, "root": 200, "acme": 403, "shop": 403}},
		{"GET", "/v1/apps/none", "", map[string]int{"": 401, "root": 404, "acme": 404, "shop": 404}},
		{"GET", shop + "/machines", "", map[string]int{"": 401, "root": 200, "acme": 200, "shop": 200}},
		{"GET", zoo + "/machines", "", map[string]int{"": 401, "root": 200, "acme": 403, "shop": 403}},
		{"POST", shop + "/machines", create, map[string]int{"": 401, "wrong": 401, "root": 200, "acme": 200, "shop": 200}},
		{"POST", zoo + "/machines", create, map[string]int{"": 401, "root": 200, "acme": 403, "shop": 403}},
		{"DELETE", zoo, "", map[string]int{"": 401, "acme": 403, "shop": 403}},
		{"POST", "/v1/apps", `{"name":"new1","org_slug":"acme"}`, map[string]int{"": 401, "acme": 201, "shop": 403}},
		{"POST", "/v1/apps", `{"name":"new2","org_slug":"other"}`, map[string]int{"acme": 403, "root": 201}},
		{"POST", "/v1/apps", `{"name":"new3"}`, map[string]int{"acme": 201}},
		{"GET", "/v1/workers", "", map[string]int{"": 401, "wrong": 401, "root": 200, "acme": 403, "shop": 403}},
		{"GET", "/v1/workers/w1/runs", "", map[string]int{"root": 200, "acme": 403, "shop": 403}},
	} {
		for token, want := range c.want {
			for _, path := range []string{c.path, c.path + "/"} { // a trailing slash makes no difference
				s := start(t, withTokens)
				s.app(t, "shop", "acme")
				s.app(t, "zoo", "zoological")
				var header []string
				if token != "" {
					header = []string{"Authorization", "Bearer " + token}
				}
				rec := s.call(t, c.method, path, c.body, header...)
				if rec.Code != want {
					t.Errorf("%s %s with token %q: status %d, want %d: %s", c.method, path, token, rec.Code, want, rec.Body)
				}
				switch got := rec.Body.String(); {
				case want == 401 && !strings.HasPrefix(got, `{"error":"Authenticate: token validation error"`):
					t.Errorf("the text of 401 is %s", got)
				case want == 403 && !strings.HasPrefix(got, `{"error":"unauthorized`):
					t.Errorf("the text of 403 is %s", got)
				}
			}
		}
	}
}

func TestListContainsOnlyOwnApps(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "acme")
	s.app(t, "zoo", "zoological")
	for token, want := range map[string]int{"root": 2, "acme": 1, "shop": 1} {
		list := decodeBody[machinesapi.AppList](t, s.call(t, "GET", "/v1/apps", "", "Authorization", "bearer "+token).Body.Bytes())
		if list.Total != want {
			t.Errorf("token %s sees %+v", token, list.Apps)
		}
	}
}

// TestOrdersOfOthersAreNotFound checks that an order for another caller's app is reported as not
// found, not as forbidden.
func TestOrdersOfOthersAreNotFound(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "acme")
	s.app(t, "zoo", "zoological")
	rec := s.call(t, "POST", "/v1/apps/zoo/machines", `{"config":`+hostConfig+`}`, "Authorization", "Bearer root")
	path := "/v1/orders/" + rec.Header().Get("Bourse-Order-Id")
	for token, want := range map[string]int{"root": 200, "acme": 404, "shop": 404} {
		if rec := s.call(t, "GET", path, "", "Authorization", "Bearer "+token); rec.Code != want {
			t.Errorf("token %s: status %d, want %d", token, rec.Code, want)
		}
	}
	for _, w := range s.workers {
		w.full = true
	}
	s.call(t, "POST", "/v1/apps/zoo/machines", `{"config":`+hostConfig+`}`, "Authorization", "Bearer root")
	for token, want := range map[string]int{"root": 1, "acme": 0, "shop": 0} {
		rec := s.call(t, "GET", "/v1/orders", "", "Authorization", "Bearer "+token)
		if list := decodeBody[[]bourse.Decision](t, rec.Body.Bytes()); rec.Code != 200 || list == nil || len(list) != want {
			t.Errorf("token %s lists %s, want %d orders", token, rec.Body, want)
		}
	}
}

func TestLeaseOwnerIsTheCaller(t *testing.T) {
	s := start(t, withTokens)
	s.app(t, "shop", "acme")
	rec := s.call(t, "POST", "/v1/apps/shop/machines", `{"config":`+hostConfig+`,"lease_ttl":10}`, "Authorization", "Bearer acme")
	if rec.Code != 200 || s.lastOrder(t).LeaseOwner != "ann@acme" {
		t.Errorf("status %d, owner %q", rec.Code, s.lastOrder(t).LeaseOwner)
	}
}
