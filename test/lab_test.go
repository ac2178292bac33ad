package test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/sim"
)

// TestLabPlacesLikeDaemons places 500 orders in the lab, and through the API of a broker with three
// workers, each of which is a process. Each order must be filled on the same worker, or refused, in
// both. The seed determines the workers' sizes and the orders. These sizes have no simple ratios, so no
// two workers ever have the same score, and the random numbers that break ties do not matter.
//
// The test chooses the orders' IDs. If a worker does not answer in time, such an order fails instead of being filled on
// another worker, and the test repeats it. A busy host therefore makes the test slower, but not wrong.
func TestLabPlacesLikeDaemons(t *testing.T) {
	t.Parallel()
	const seed = 1
	trace, arrivals := sim.Small(seed)
	lab := sim.Strategies()[0]
	if lab.Name != "Bourse" {
		t.Fatalf("the first strategy is %s, want Bourse", lab.Name)
	}
	wants := sim.Placements(trace, arrivals, &lab, &sim.Conditions{Brokers: 1}, seed)
	b := startServer(t, "b", "serve", "broker", "--listen", "127.0.0.1:0", "--name", "b0")
	var workers []*server
	for i, h := range trace.Hosts {
		name := fmt.Sprintf("w%d", i)
		workers = append(workers, newServer(t, name, "serve", "worker", "--name", name, "--region", "gru", "--data", filepath.Join(t.TempDir(), name), "--join", b.Addr,
			"--cpus", fmt.Sprint(h.CPU/1000), "--memory", fmt.Sprintf("%dMiB", h.Memory), "--disk", "1TiB", "--ephemeral"))
	}
	startAll(t, workers...)
	api := client(t, b)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 4, api) })
	// The load of this host does not belong to the experiment, and in the lab, each order has an app of its own.
	policy := `{"name": "lab", "curves": {"load": {"weight": 0}, "spread": {"weight": 0}}}`
	if _, err := api.Operator().SetPolicy(t.Context(), machinesapi.SetPolicy{Policy: []byte(policy)}); err != nil {
		t.Fatal(err)
	}
	mark, refused := markOf(t), 0
	for i := range arrivals {
		shape := &trace.Shapes[arrivals[i].Shape]
		order := sleeper("gru", mark)
		order.Config.Init.Exec = []string{"/bin/sleep", "1000"}
		order.Config.Guest = &bourse.Guest{CPUKind: bourse.CPUPerformance, CPUs: int64(shape.CPU) / 1000, MemoryMB: shape.Memory}
		want := bourse.WorkerID("")
		if wants[i] >= 0 {
			want = bourse.WorkerID(fmt.Sprintf("w%d", wants[i]))
		} else {
			refused++
		}
		if got := placed(t, api, order); got != want {
			t.Fatalf("order %d was filled on %q by the cluster, want %q as in the lab", i, got, want)
		}
	}
	if refused == 0 {
		t.Error("no order was refused, so the workers were never full")
	}
}

// placed places an order, and returns the worker that fills it, or "" if all workers refuse it. It
// repeats the order until all workers have answered.
func placed(t *testing.T, api *machinesapi.Client, order machinesapi.CreateMachine) (at bourse.WorkerID) {
	t.Helper()
	id := bourse.NewOrderID()
	eventually(t, waitTimeout, "all workers answer", func() error {
		m, err := api.Create(t.Context(), app, order, id)
		switch code := bourse.CodeOf(err); {
		case code == bourse.CodeInsufficient:
			return nil
		case code == bourse.CodeUnavailable || code == bourse.CodeTimeout:
			return err
		case err != nil:
			t.Fatal(err)
		}
		at = m.Worker
		return nil
	})
	return at
}
