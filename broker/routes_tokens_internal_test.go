package broker

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/view/inventory"
)

// reach describes who is expected to be allowed to call an endpoint.
type reach struct {
	of      string // required permission: anyone, token, app, machine, metrics or cluster
	changes bool
	narrow  bool // a machine token may call the endpoint, which shows it no other machines
}

// reaches determines from an endpoint's path who may call the endpoint. The first entry whose path is a prefix of the
// endpoint's path applies. A new noun needs an entry here, as does a path whose permissions differ from those of
// similar paths.
var reaches = []struct{ path, of string }{
	{"/v1/health", "anyone"},
	{"/v1/platform/regions", "anyone"},
	{"/openapi.json", "anyone"},

	{"/metrics", "metrics"},
	{"/v1/metrics/", "metrics"},
	{"/v1/workers/{worker}/metrics", "metrics"},
	{"/v1/proxies/{proxy}/metrics", "metrics"},

	{"/v1/images", "cluster"},
	{"/v1/join_tokens", "cluster"},
	{"/v1/members", "cluster"},
	{"/v1/policies", "cluster"},
	{"/v1/keys", "cluster"},
	{"/v1/proxies", "cluster"},
	{"/v1/workers", "cluster"},
	{"/v1/view/", "cluster"},

	{"/v1/apps/{app}/machines/{machine}", "machine"},
	{"/v1/apps/{app}", "app"},

	{"/v1/apps", "token"},
	{"/v1/machines", "token"},
	{"/v1/orders", "token"},
	{"/v1/orgs/{org}/", "token"},
	{"/v1/platform/placements", "token"},
	{"/v1/reservations", "token"},
	{"/schedule", "token"},
	{"/v1/tokens", "token"},
	{"/v1/wireguard_peers", "token"},
}

// narrow contains the endpoints that do not concern a single machine, but accept machine tokens because they then show
// only the token's machines.
var narrow = []string{"GET /v1/apps", "GET /v1/apps/{app}", "GET /v1/apps/{app}/machines", "GET /v1/machines", "GET /v1/tokens/current"}

// reachOf returns who may call an endpoint. It assumes that every method except GET changes
// something.
func reachOf(pattern string) (reach, bool) {
	method, path, _ := strings.Cut(pattern, " ")
	for _, r := range reaches {
		if below, ok := strings.CutPrefix(path, r.path); ok && (below == "" || below[0] == '/' || strings.HasSuffix(r.path, "/")) {
			return reach{of: r.of, changes: method != http.MethodGet, narrow: slices.Contains(narrow, pattern)}, true
		}
	}
	return reach{}, false
}

// kind is a kind of token in the test. Its permissions use the terms of reaches.
type kind struct {
	name     string
	grant    *inventory.Token // nil: there is no token, or it is unknown
	shown    string
	ended    bool
	apps     bool // the token permits app web
	machine  bool // the token permits only the test's machine
	other    bool // the token permits only another machine
	readOnly bool
	cluster  bool
}

const ours, others = "148e21ea1d5389", "148e21ea1d5390"

func kinds(now time.Time) []kind {
	web := []bourse.AppRef{{Name: "web", ID: "1"}}
	return []kind{
		{name: "none"},
		{name: "unknown", shown: endpoint.NewToken()},
		{name: "garbage", shown: strings.Repeat("\xff\x00§", 1000)},
		{name: "expired", grant: &inventory.Token{Org: "*", ExpiresAt: now}, ended: true},
		{name: "revoked", grant: &inventory.Token{Org: "*", RevokedAt: now}, ended: true},
		{name: "other organization", grant: &inventory.Token{Org: "zoo"}},
		{name: "other app", grant: &inventory.Token{Org: "acme", Apps: []bourse.AppRef{{Name: "shop", ID: "2"}}}},
		{name: "earlier app with the same name", grant: &inventory.Token{Org: "acme", Apps: []bourse.AppRef{{Name: "web", ID: "0"}}}},
		{name: "other machine", grant: &inventory.Token{Org: "acme", Apps: web, Machines: []bourse.MachineID{others}}, apps: true, other: true},
		{name: "the machine", grant: &inventory.Token{Org: "acme", Apps: web, Machines: []bourse.MachineID{ours}}, apps: true, machine: true},
		{name: "the machine, read-only", grant: &inventory.Token{Org: "acme", Apps: web, Machines: []bourse.MachineID{ours}, ReadOnly: true}, apps: true, machine: true, readOnly: true},
		{name: "the app", grant: &inventory.Token{Org: "acme", Apps: web}, apps: true},
		{name: "the app, read-only", grant: &inventory.Token{Org: "acme", Apps: web, ReadOnly: true}, apps: true, readOnly: true},
		{name: "the organization", grant: &inventory.Token{Org: "acme"}, apps: true},
		{name: "everything, read-only", grant: &inventory.Token{Org: "*", ReadOnly: true}, apps: true, cluster: true, readOnly: true},
		{name: "everything", grant: &inventory.Token{Org: "*"}, apps: true, cluster: true},
	}
}

// want returns the expected code for calling an endpoint with this kind of token.
func (k *kind) want(to reach) bourse.Code {
	narrow := k.machine || k.other
	switch {
	case to.of == "anyone":
		return ""
	case k.grant == nil || k.ended:
		return bourse.CodeUnauthorized
	case (to.of == "metrics" || to.of == "cluster") && !k.cluster,
		(to.of == "app" || to.of == "machine") && !k.apps,
		k.readOnly && to.changes,
		narrow && to.of != "machine" && !to.narrow,
		k.other && to.of == "machine":
		return bourse.CodeForbidden
	}
	return ""
}

// TestEveryEndpointAndEveryToken calls every endpoint with every kind of token, and compares the
// gate's decision with reaches.
func TestEveryEndpointAndEveryToken(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	book := tokenBook{}
	all := kinds(now)
	for i := range all {
		if g := all[i].grant; g != nil {
			all[i].shown = endpoint.NewToken()
			g.ID, g.Digest, _ = endpoint.Digest(all[i].shown)
			g.Name = "ci"
			book[g.ID] = g
		}
	}
	issued := endpoint.NewIssued(book, nil, func() bool { return true }, func() time.Time { return now })
	s, routes, _ := compose(&Config{
		View: appsOnly{}, Tokens: issued, Issued: issued, Orders: throttle.OrderLimits{}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
	})
	served := map[string]bool{}
	for _, rt := range routes {
		to, ok := reachOf(rt.Pattern)
		if !ok {
			t.Errorf("%s is not in the table: add an entry that describes who may call it", rt.Pattern)
			continue
		}
		served[rt.Pattern] = true
		method, _, _ := strings.Cut(rt.Pattern, " ")
		for _, k := range all {
			for _, scheme := range []string{"Bearer ", "FlyV1 fm2_x,"} {
				r := &endpoint.Request{Request: httptest.NewRequestWithContext(t.Context(), method, "/", nil)}
				if k.shown != "" {
					r.Header.Set("Authorization", scheme+k.shown)
				}
				r.SetPathValue("app", "web")
				if strings.Contains(rt.Pattern, "{machine}") {
					r.SetPathValue("machine", ours)
				}
				if got := bourse.CodeOf(s.Gate.Authorize(&rt, r)); got != k.want(to) {
					t.Errorf("%s with %s, %s: %q, want %q", rt.Pattern, scheme, k.name, got, k.want(to))
				}
			}
		}
	}
	for _, r := range reaches {
		if !slices.ContainsFunc(routes, func(rt endpoint.Route) bool { return strings.Contains(rt.Pattern, " "+r.path) }) {
			t.Errorf("the table contains %s, which is not a prefix of any endpoint", r.path)
		}
	}
	for _, pattern := range narrow {
		if !served[pattern] {
			t.Errorf("narrow contains %s, which is not an endpoint", pattern)
		}
	}
}

// appsOnly is a view that contains only app web of organization acme.
type appsOnly struct{ lookup.View }

func (appsOnly) InSync() bool { return true }

func (appsOnly) App(_ context.Context, name bourse.AppName) (*bourse.App, error) {
	if name != "web" {
		return nil, nil
	}
	return &bourse.App{Name: name, ID: "1", Org: "acme"}, nil
}

// tokenBook is an in-memory store of tokens.
type tokenBook map[string]*inventory.Token

func (b tokenBook) Token(_ context.Context, id string) (*inventory.Token, error) { return b[id], nil }
func (b tokenBook) Tokens(context.Context) ([]inventory.Token, error)            { return nil, nil }
func (b tokenBook) PutToken(context.Context, *inventory.Token) error             { return nil }
