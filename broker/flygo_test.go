package broker_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"
	"github.com/superfly/fly-go/tokens"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/endpoint"
)

// flyClient returns fly-go's client of the Machines API, connected to the broker.
func flyClient(t *testing.T, s *setup, token string) *flaps.Client {
	t.Helper()
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	t.Setenv("FLY_FLAPS_BASE_URL", server.URL)
	client, err := flaps.NewWithOptions(t.Context(), flaps.NewClientOpts{UserAgent: "bourse-test", Tokens: tokens.Parse(token)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func flyInput() fly.LaunchMachineInput {
	return fly.LaunchMachineInput{Name: "web", Region: "gru", Config: &fly.MachineConfig{
		Image: "host", Init: fly.MachineInit{Exec: []string{"sleep", "60"}}, Metadata: map[string]string{"fly_platform_version": "v2"},
		Services: []fly.MachineService{{Protocol: "tcp", InternalPort: 8080, Autostart: new(true)}},
		Restart:  &fly.MachineRestart{Policy: fly.MachineRestartPolicyOnFailure},
	}}
}

func TestFlyGoMachines(t *testing.T) {
	s := start(t, func(c *broker.Config) { c.Tokens = tokensOf("secret", endpoint.Identity{Name: "ann"}) })
	client, ctx := flyClient(t, s, "secret"), t.Context()

	app, err := client.CreateApp(ctx, flaps.CreateAppRequest{Name: "shop", Org: "personal"})
	if err != nil || app.Name != "shop" || app.Organization.Slug != "personal" || app.Deployed() {
		t.Fatalf("create app: %+v, %v", app, err)
	}
	if err := client.WaitForApp(ctx, "shop"); err != nil {
		t.Fatalf("wait for app: %v", err)
	}

	m, err := client.Launch(ctx, "shop", flyInput())
	if err != nil {
		t.Fatalf("launch: %v", err)
	}
	if m.HostStatus != fly.HostStatusOk || m.Config == nil || m.Config.Guest == nil || m.Config.Guest.ToSize() != "shared-cpu-1x" || m.InstanceID == "" {
		t.Errorf("launched %+v", m)
	}
	if len(m.Config.Services) != 1 || m.Config.Services[0].InternalPort != 8080 {
		t.Errorf("services were returned as %+v", m.Config.Services)
	}
	if _, err := m.MostRecentStartTimeAfterLaunch(); err != nil {
		t.Errorf("smoke check: %v", err)
	}
	if err := client.Wait(ctx, "shop", m.ID, flaps.WithWaitStates("started", "settled")); err != nil {
		t.Errorf("wait: %v", err)
	}
	if app, err := client.GetApp(ctx, "shop"); err != nil || !app.Deployed() || app.MachineCount != 1 {
		t.Errorf("app %+v, %v", app, err)
	}
	got, err := client.Get(ctx, "shop", m.ID)
	if err != nil || got.State != "started" || got.FullImageRef() != "/host:latest" {
		t.Errorf("get: %+v, %v", got, err)
	}
	flyMetadata(t, client, m.ID)
	flyLeaseAndVerbs(t, client, m.ID)

	if err := client.Destroy(ctx, "shop", fly.RemoveMachineInput{ID: m.ID, Kill: true}, ""); err != nil {
		t.Errorf("destroy: %v", err)
	}
	gone, err := client.Get(ctx, "shop", m.ID)
	if err != nil || gone.State != "destroyed" {
		t.Fatalf("get after destroy: %+v, %v", gone, err)
	}
	exit := gone.GetLatestEventOfType("exit")
	if code, err := exit.Request.GetExitCode(); err != nil || code != 130 || exit.Request.ExitEvent.ExitedAt.IsZero() || !exit.Request.ExitEvent.RequestedStop {
		t.Errorf("exit event %+v, %v", exit.Request.ExitEvent, err)
	}
	if active, err := client.ListActive(ctx, "shop"); err != nil || len(active) != 0 {
		t.Errorf("active after destroy: %+v, %v", active, err)
	}
	if err := client.DeleteApp(ctx, "shop"); err != nil {
		t.Errorf("delete app: %v", err)
	}
	if _, err := client.GetApp(ctx, "shop"); !errors.Is(err, flaps.ErrFlapsNotFound) || err.Error() != "app not found" {
		t.Errorf("get app after delete: %v", err)
	}
}

func tokensOf(token string, who endpoint.Identity) endpoint.Tokens { return tokenMap{token: who} }

func flyMetadata(t *testing.T, client *flaps.Client, id string) {
	t.Helper()
	ctx := t.Context()
	if err := client.SetMetadata(ctx, "shop", id, "tag", "blue"); err != nil {
		t.Errorf("set metadata: %v", err)
	}
	if got, err := client.GetMetadata(ctx, "shop", id); err != nil || got["tag"] != "blue" {
		t.Errorf("metadata %v, %v", got, err)
	}
	if list, err := client.List(ctx, "shop", "metadata.tag=blue"); err != nil || len(list) != 1 {
		t.Errorf("list by metadata: %v, %v", list, err)
	}
	if machines, _, err := client.ListFlyAppsMachines(ctx, "shop"); err != nil || len(machines) != 1 {
		t.Errorf("list of deploy: %v, %v", machines, err)
	}
	if err := client.DeleteMetadata(ctx, "shop", id, "tag"); err != nil {
		t.Errorf("delete metadata: %v", err)
	}
}

func flyLeaseAndVerbs(t *testing.T, client *flaps.Client, id string) {
	t.Helper()
	ctx, ttl := t.Context(), 30
	lease, err := client.AcquireLease(ctx, "shop", id, &ttl)
	if err != nil || lease.Data == nil || lease.Status != "success" || lease.Data.Owner != "ann" {
		t.Fatalf("acquire lease: %+v, %v", lease, err)
	}
	nonce := lease.Data.Nonce
	if again, err := client.RefreshLease(ctx, "shop", id, &ttl, nonce); err != nil || again.Data.Nonce != nonce {
		t.Errorf("refresh lease: %+v, %v", again, err)
	}
	if found, err := client.FindLease(ctx, "shop", id); err != nil || found.Data.Nonce != nonce || found.Data.Version == "" {
		t.Errorf("find lease: %+v, %v", found, err)
	}
	var refused *flaps.FlapsError
	if _, err := client.Start(ctx, "shop", id, ""); !errors.As(err, &refused) || refused.ResponseStatusCode != 409 || refused.FlyRequestId == "" {
		t.Errorf("start without the nonce: %v", err)
	}
	if err := client.Cordon(ctx, "shop", id, nonce); err != nil {
		t.Errorf("cordon: %v", err)
	}
	if err := client.Uncordon(ctx, "shop", id, nonce); err != nil {
		t.Errorf("uncordon: %v", err)
	}
	if err := client.Restart(ctx, "shop", fly.RestartMachineInput{ID: id, Timeout: 5 * time.Second, Signal: "SIGTERM"}, nonce); err != nil {
		t.Errorf("restart: %v", err)
	}
	if out, err := client.Exec(ctx, "shop", id, &fly.MachineExecRequest{Cmd: "echo hi", Timeout: 5}); err != nil || out.ExitCode != 3 || out.StdOut != `["echo","hi"]` {
		t.Errorf("exec: %+v, %v", out, err)
	}
	if err := client.Kill(ctx, "shop", id); err != nil {
		t.Errorf("kill: %v", err)
	}
	if err := client.Stop(ctx, "shop", fly.StopMachineInput{ID: id}, nonce); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := client.Wait(ctx, "shop", id, flaps.WithWaitStates("stopped"), flaps.WithWaitTimeout(time.Second)); err != nil {
		t.Errorf("wait for stopped: %v", err)
	}
	if done, err := client.Start(ctx, "shop", id, nonce); err != nil || done.PreviousState != "stopped" || done.Status == "error" {
		t.Errorf("start: %+v, %v", done, err)
	}
	if err := client.Stop(ctx, "shop", fly.StopMachineInput{ID: id}, nonce); err != nil {
		t.Errorf("stop again: %v", err)
	}
	if err := client.ReleaseLease(ctx, "shop", id, nonce); err != nil {
		t.Errorf("release lease: %v", err)
	}
}

// TestFlyGoErrors checks how fly-go's client interprets the errors that it handles specially.
func TestFlyGoErrors(t *testing.T) {
	s := start(t)
	client, ctx := flyClient(t, s, "any"), t.Context()
	s.app(t, "shop", "personal")

	if _, err := client.CreateApp(ctx, flaps.CreateAppRequest{Name: "shop"}); err == nil || *flaps.GetErrorStatusCode(err) != "name_taken" {
		t.Errorf("a taken name: %v", err)
	}
	if _, err := client.Get(ctx, "shop", "aaaaaa00000000"); !errors.Is(err, flaps.ErrFlapsNotFound) {
		t.Errorf("missing machine: %v", err)
	}
	for _, w := range s.workers {
		w.full = true
	}
	_, err := client.Launch(ctx, "shop", flyInput())
	if err == nil || *flaps.GetErrorStatusCode(err) != "insufficient_capacity" || flaps.GetErrorRequestID(err) == "" {
		t.Errorf("no capacity: %v", err)
	}
	if got := len(s.orders); got != 1 {
		t.Errorf("a refused request was sent %d times", got)
	}
	regions, err := client.GetRegions(ctx)
	if err != nil || len(regions.Regions) != 2 || regions.Regions[0].Code != "gru" {
		t.Errorf("regions %+v, %v", regions, err)
	}
	m := s.machine(t, "w1", "x", bourse.StateStarted)
	if err := client.Wait(ctx, "shop", string(m.ID), flaps.WithWaitStates("stopped"), flaps.WithWaitTimeout(time.Second)); err == nil {
		t.Error("a wait that cannot succeed returned no error")
	}
}
