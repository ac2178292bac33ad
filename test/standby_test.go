package test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestStandbyReplacesALostWorkersMachine kills a worker with a machine that has two standbys on other workers. Exactly
// one of them must start within seconds, even if its worker's daemon restarts. When the lost worker returns with the
// machine still running, the standby must stop.
func TestStandbyReplacesALostWorkersMachine(t *testing.T) {
	t.Parallel()
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	lost, _ := newWorker(t, "w1", "gru", "--join", broker.Addr)
	one, _ := newWorker(t, "w2", "gru", "--join", broker.Addr, "--standby-after", "1s")
	two, _ := newWorker(t, "w3", "gru", "--join", broker.Addr, "--standby-after", "1s")
	startAll(t, lost, one, two)
	lost.Settle()
	api := client(t, broker)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 4, api) })
	order := func(worker string) machinesapi.CreateMachine {
		return on(worker, sleeper("gru", "bourse-standby-"+fmt.Sprint(os.Getpid())))
	}
	primary := create(t, api, order("w1"))
	var spares []machinesapi.Machine
	for _, worker := range []string{"w2", "w3"} {
		in := order(worker)
		in.Config.Standbys = []bourse.MachineID{primary.ID}
		spare := create(t, api, in)
		if spare.State != bourse.StateStopped {
			t.Fatalf("spare %s was created as %s, want stopped", spare.ID, spare.State)
		}
		spares = append(spares, spare)
	}
	states := func() (out []string) {
		for _, s := range spares {
			m, err := api.Machine(t.Context(), app, s.ID)
			if err != nil {
				return []string{err.Error()}
			}
			out = append(out, string(m.State)+" "+string(m.PromotedFor))
		}
		return out
	}
	are := func(what string, wanted ...string) {
		t.Helper()
		took := eventually(t, waitTimeout, what, func() error {
			if got := fmt.Sprint(states()); !slices.Contains(wanted, got) {
				return fmt.Errorf("spares are %s, want %s", got, wanted)
			}
			return nil
		})
		t.Logf("%s after %s", what, took.Round(time.Millisecond))
	}
	eventually(t, waitTimeout, "the view contains the spares", func() error {
		rows, err := query(t.Context(), api, "SELECT count(*) FROM machines WHERE state IN ('started', 'stopped')")
		if err == nil && fmt.Sprint(rows) != "[[3]]" {
			err = fmt.Errorf("the view counts %v, want 3", rows)
		}
		return err
	})
	in, out := "started "+string(primary.ID), "stopped "
	if err := lost.Kill(); err != nil {
		t.Fatal(err)
	}
	are("one spare runs", fmt.Sprint([]string{in, out}), fmt.Sprint([]string{out, in}))
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	are("one spare runs after its worker was restarted", fmt.Sprint([]string{in, out}), fmt.Sprint([]string{out, in}))
	if err := lost.Start(); err != nil {
		t.Fatal(err)
	}
	are("the spares are stopped", fmt.Sprint([]string{out, out}))
	if m, err := api.Machine(t.Context(), app, primary.ID); err != nil || m.State != bourse.StateStarted || m.Starts != 1 {
		t.Errorf("the primary machine is %s after %d starts, %v; want started after 1", m.State, m.Starts, err)
	}
}
