package test

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestPermanentlyLostWorkerReturns repeats an order whose worker has died with its machine. Until the worker is
// removed, the outcome must be unknown, and the order must not be filled again. Then the order must be filled exactly
// once on another worker. When the first worker returns after all, it must destroy its machine of that order, and the
// later machine must stay.
func TestPermanentlyLostWorkerReturns(t *testing.T) {
	t.Parallel()
	const limit = 8 * time.Second
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--lost-after", limit.String())
	lost, _ := newWorker(t, "w1", "gru", "--join", broker.Addr)
	startAll(t, lost)
	lost.Settle()
	api := client(t, broker)
	eventually(t, waitTimeout, "the servers know each other", func() error { return servertest.Agreed(t.Context(), 2, api) })
	mark := markOf(t)
	id, in := bourse.NewOrderID(), sleeper("gru", mark)
	in.Deadline = bourse.Duration(2 * time.Second)
	first, err := api.Create(t.Context(), app, in, id)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := newWorker(t, "w2", "gru", "--join", broker.Addr)
	startAll(t, other)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 3, api) })
	if err := lost.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	unknown := 0
	took := eventually(t, 4*limit, "the repeated order is filled", func() error {
		second, err := api.Create(t.Context(), app, in, id)
		switch {
		case err == nil && (second.Worker != "w2" || second.ID == first.ID):
			t.Fatalf("the repeated order returned machine %s of %s, want another machine on w2", second.ID, second.Worker)
		case err == nil && time.Since(killed) < limit:
			t.Fatalf("the repeated order was filled %s after the worker was killed, want at least %s", time.Since(killed), limit)
		case err != nil && !unanswered(err):
			t.Fatalf("the repeated order was refused: %v", err)
		case err != nil:
			unknown++
		}
		return err
	})
	t.Logf("the outcome of %d repeated orders was unknown; the order was filled after %s", unknown, took.Round(time.Millisecond))
	if unknown == 0 {
		t.Error("the repeated order was filled at the first attempt, want unknown outcomes until the worker counts as lost")
	}
	again, err := api.Create(t.Context(), app, in, id)
	if err != nil || again.Worker != "w2" {
		t.Errorf("order repeated again: got machine %s on %s, %v; want a machine on w2", again.ID, again.Worker, err)
	}
	eventually(t, waitTimeout, "both machines' processes run while the first worker is down", func() error {
		if pids := pidsOf(t, mark); len(pids) != 2 { // a shell that has just forked looks like two processes
			return bourse.Errorf(bourse.CodeConflict, "processes %v, want 2", pids)
		}
		return nil
	})

	if err := lost.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "only the later machine remains", func() error {
		left, pids := owned(t, lost, other), pidsOf(t, mark)
		if m, ok := left[again.ID]; len(left) != 1 || !ok || m.Worker != "w2" || len(pids) != 1 {
			return bourse.Errorf(bourse.CodeConflict, "machines %+v and processes %v remain, want only %s on w2", left, pids, again.ID)
		}
		return nil
	})
}
