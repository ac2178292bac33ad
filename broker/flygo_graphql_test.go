package broker_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/tokens"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/flycompat"
	"github.com/bourse-dev/bourse/fabric"
)

// graphQLClients returns real clients of the GraphQL API, one for each token. Their address is a
// global variable, so the test must not run in parallel with others.
func graphQLClients(t *testing.T, s *setup, names ...string) []*fly.Client {
	t.Helper()
	server := httptest.NewServer(flycompat.Handler(s.handler))
	t.Cleanup(server.Close)
	fly.SetBaseURL(server.URL)
	var out []*fly.Client
	for _, token := range names {
		out = append(out, fly.NewClientFromOptions(fly.ClientOptions{Name: "bourse-test", Version: "0", BaseURL: server.URL, Tokens: tokens.Parse(token)}))
	}
	return out
}

func TestFlyGoGraphQL(t *testing.T) {
	s := start(t, func(c *broker.Config) { withTokens(c) })
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	client, ctx := graphQLClients(t, s, "root")[0], t.Context()

	if app, err := client.GetAppCompact(ctx, "shop"); err != nil || app.ID != "shop" || app.Organization.Slug == "" || app.PlatformVersion != "machines" {
		t.Errorf("compact app: %+v, %v", app, err)
	}
	if app, err := client.GetAppBasic(ctx, "shop"); err != nil || app.Name != "shop" || app.Organization.RawSlug == "" {
		t.Errorf("basic app: %+v, %v", app, err)
	}
	if app, err := client.GetApp(ctx, "shop"); err != nil || len(app.Machines.Nodes) != 1 || app.Machines.Nodes[0].ID != string(m.ID) || !app.Deployed {
		t.Errorf("whole app: %+v, %v", app, err)
	}
	if network, err := client.GetAppNetwork(ctx, "shop"); err != nil || *network != "" {
		t.Errorf("network: %v, %v", network, err)
	}
	if _, err := client.GetAppCompact(ctx, "nowhere"); err == nil || !strings.Contains(err.Error(), "Could not find App") {
		t.Errorf("unknown app: %v", err)
	}
	if free, err := client.AppNameAvailable(ctx, "nowhere"); err != nil || !free {
		t.Errorf("free name: %v, %v", free, err)
	}
	if got, err := client.GetMachine(ctx, string(m.ID)); err != nil || got.App.Name != "shop" {
		t.Errorf("machine by its id: %+v, %v", got, err)
	}
	if apps, err := client.GetApps(ctx, nil); err != nil || len(apps) == 0 {
		t.Errorf("apps: %+v, %v", apps, err)
	}
	if orgs, err := client.GetOrganizations(ctx, fly.AdminOnly); err != nil || len(orgs) == 0 || orgs[0].RawSlug == "" {
		t.Errorf("organizations: %+v, %v", orgs, err)
	}
	if regions, nearest, err := client.PlatformRegions(ctx); err != nil || len(regions) == 0 || nearest == nil {
		t.Errorf("regions: %+v, %v, %v", regions, nearest, err)
	}
	if ips, err := client.GetEgressIPAddresses(ctx, "shop"); err != nil || len(ips) != 0 {
		t.Errorf("egress addresses: %v, %v", ips, err)
	}
	if bad, err := client.ValidateWireGuardPeers(ctx, []string{"fdaa::1"}); err != nil || len(bad) != 0 {
		t.Errorf("peers: %v, %v", bad, err)
	}
	if peers, err := client.GetWireGuardPeers(ctx, "personal"); err != nil || len(peers) != 0 {
		t.Errorf("peers: %v, %v", peers, err)
	}
	if tokens, err := client.GetDelegatedWireGuardTokens(ctx, "personal"); err != nil || len(tokens) != 0 {
		t.Errorf("delegated tokens: %v, %v", tokens, err)
	}
}

// TestTheAgentGetsAnAnswer sends the requests of flyctl's agent, which asks for the nearest region and its code, and
// then for a WireGuard peer. Users see the response to the last request.
func TestTheAgentGetsAnAnswer(t *testing.T) {
	for _, region := range []bourse.Region{"gru", "nowhere", ""} {
		s := start(t, func(c *broker.Config) { c.Region = region })
		client := graphQLClients(t, s, "root")[0]
		nearest, err := client.ClosestWireguardGatewayRegion(t.Context())
		if err != nil || nearest == nil || nearest.Code == "" {
			t.Fatalf("from a broker in %q: %+v, %v", region, nearest, err)
		}
		_, err = client.CreateWireGuardPeer(t.Context(), "personal", nearest.Code, "laptop", "key", "")
		if err == nil || !strings.Contains(err.Error(), "no WireGuard gateway") {
			t.Errorf("a peer: %v", err)
		}
	}
}

// TestGraphQLOfATenant checks that a tenant sees only its own objects, as in /v1.
func TestGraphQLOfATenant(t *testing.T) {
	s := start(t, func(c *broker.Config) { withTokens(c) })
	s.machine(t, "w1", "web", bourse.StateStarted)
	clients, ctx := graphQLClients(t, s, "root", "acme", "wrong"), t.Context()
	root, tenant, stranger := clients[0], clients[1], clients[2]
	all, err := root.GetApps(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range all {
		mine := app.Organization.Slug == "acme"
		_, err := tenant.GetApp(ctx, app.Name)
		if seen := err == nil; seen != mine {
			t.Errorf("app %s of %s: %v", app.Name, app.Organization.Slug, err)
		}
		if _, _, err := tenant.GetAppLogs(ctx, app.Name, "", "", ""); (err == nil) != mine {
			t.Errorf("logs of %s: %v", app.Name, err)
		}
	}
	list, err := tenant.GetApps(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range list {
		if app.Organization.Slug != "acme" {
			t.Errorf("the tenant's list has %s of %s", app.Name, app.Organization.Slug)
		}
	}
	orgs, err := tenant.GetOrganizations(ctx)
	if err != nil || len(orgs) != 1 || orgs[0].Slug != "acme" {
		t.Errorf("the tenant's organizations: %+v, %v", orgs, err)
	}
	if me, err := tenant.GetCurrentUser(ctx); err != nil || me.Email != "ann@acme" {
		t.Errorf("the tenant is %+v, %v", me, err)
	}
	if _, err := stranger.GetApps(ctx, nil); err == nil || !strings.Contains(err.Error(), "token validation") {
		t.Errorf("an unknown token: %v", err)
	}
	if _, err := stranger.GetCurrentUser(ctx); err == nil {
		t.Error("an unknown token has an identity")
	}
}

// TestPolledLogs checks that the second page of logs contains the new lines. If there are none, the page must be empty
// and contain the same token.
func TestPolledLogs(t *testing.T) {
	s, id := withLogs(t)
	w := s.workers["w1"]
	for i := range w.logs {
		w.logs[i].Position = fmt.Sprintf("1.%d", i)
	}
	client, ctx := graphQLClients(t, s, "")[0], t.Context()
	first, token, err := client.GetAppLogs(ctx, "shop", "", "", "")
	if err != nil || len(first) != 3 || first[0].Message != "one" || first[0].Instance != string(id) || token == "" {
		t.Fatalf("first page: %+v, %q, %v", first, token, err)
	}
	again, same, err := client.GetAppLogs(ctx, "shop", token, "", "")
	if err != nil || len(again) != 0 || same != token {
		t.Fatalf("nothing new: %+v, %q, %v", again, same, err)
	}
	w.logs = append(w.logs, fabric.LogLine{Position: "1.3", At: logTime.Add(time.Minute), Stream: "stdout", Text: "four"})
	news, next, err := client.GetAppLogs(ctx, "shop", token, "", string(id))
	if err != nil || len(news) != 1 || news[0].Message != "four" || next == token {
		t.Fatalf("a new line: %+v, %q, %v", news, next, err)
	}
	for query, want := range map[[2]string]string{{"x", ""}: "400", {"", "aaaaaa00000000"}: "404"} {
		if _, _, err := client.GetAppLogs(ctx, "shop", query[0], "", query[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", query, err, want)
		}
	}
}
