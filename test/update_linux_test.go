package test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestUpdateDuringDestroy updates and destroys a machine concurrently. Afterwards the machine and all of its processes
// must be gone, and the update must return an error that clients do not retry.
func TestUpdateDuringDestroy(t *testing.T) {
	t.Parallel()
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	worker, _ := newWorker(t, "w1", "gru", "--join", broker.Addr)
	startAll(t, worker)
	api := client(t, broker)
	eventually(t, waitTimeout, "both servers know each other", func() error { return servertest.Agreed(t.Context(), 2, api) })
	mark := fmt.Sprintf("bourse-update-destroy-%d", os.Getpid())
	var both sync.WaitGroup
	for range 12 {
		m := create(t, api, sleeper("gru", mark))
		both.Go(func() {
			_, err := api.Update(t.Context(), app, m.ID, machinesapi.UpdateMachine{Config: sleeper("gru", mark).Config}, "")
			switch bourse.CodeOf(err) {
			case "", bourse.CodeNotFound, bourse.CodeFailedPrecondition, bourse.CodeConflict:
			default:
				t.Errorf("update of a machine that is being destroyed: %v, want success, not_found, failed_precondition or conflict", err)
			}
		})
		both.Go(func() {
			if err := api.Destroy(t.Context(), app, m.ID, machinesapi.DestroyMachine{Force: true}, ""); err != nil {
				t.Errorf("destroy of a machine that is being updated: %v, want success", err)
			}
		})
	}
	both.Wait()
	eventually(t, waitTimeout, "the machine's processes are gone", func() error {
		if left := pidsOf(t, mark); len(left) > 0 {
			return fmt.Errorf("processes %v remain, want none", left)
		}
		return nil
	})
}

// TestUpdateDuringWorkerStop stops a worker while the old version of a machine is exiting slowly, and restarts the
// worker. The worker must continue the update where it was interrupted.
func TestUpdateDuringWorkerStop(t *testing.T) {
	t.Parallel()
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	worker, _ := newWorker(t, "w1", "gru", "--join", broker.Addr, "--ephemeral=false")
	startAll(t, worker)
	worker.Settle()
	api := client(t, broker)
	eventually(t, waitTimeout, "the broker and the worker know each other", func() error { return servertest.Agreed(t.Context(), 2, api) })
	mark := fmt.Sprintf("bourse-update-stop-%d-", os.Getpid())
	order := sleeper("gru", "")
	order.Config.Init.Exec = []string{"/bin/sh", "-c", "trap '' INT TERM; exec /bin/sh -c 'while :; do sleep 0.1; done' " + mark + "old"}
	order.Config.StopConfig = &bourse.StopConfig{Timeout: bourse.Duration(5 * time.Minute)}
	m := create(t, api, order)
	defer func() {
		if err := api.Destroy(t.Context(), app, m.ID, machinesapi.DestroyMachine{Force: true}, ""); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, waitTimeout, "the old version ignores signals", func() error { // the process's mark is a separate argument
		if len(pidsOf(t, "\x00"+mark+"old")) == 0 {
			return errors.New("the old version does not run yet, so a signal would end it immediately")
		}
		return nil
	})
	updated := make(chan error, 1)
	go func() {
		_, err := api.Update(t.Context(), app, m.ID, machinesapi.UpdateMachine{Config: sleeper("gru", mark+"new").Config}, "")
		updated <- err
	}()
	state := func(want bourse.State) error {
		now, err := api.Machine(t.Context(), app, m.ID)
		if err == nil && now.State != want {
			err = fmt.Errorf("the machine is %s, want %s", now.State, want)
		}
		return err
	}
	eventually(t, waitTimeout, "the old version is being stopped", func() error {
		select {
		case err := <-updated:
			t.Fatalf("the update has ended, although the old version still runs: %v", err)
		default:
		}
		return state(bourse.StateReplacing)
	})
	if err := worker.Stop(); err != nil {
		t.Errorf("stop of the worker: %v", err)
	}
	if err := <-updated; err != nil && bourse.CodeOf(err) != bourse.CodeUnavailable && bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("update whose worker was stopped: %v, want success, unavailable or timeout", err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the worker continues the update", func() error {
		return errors.Join(servertest.Agreed(t.Context(), 2, api), state(bourse.StateReplacing))
	})
	for _, pid := range pidsOf(t, mark+"old") {
		if pid, err := strconv.Atoi(pid); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // a child of the shell may have exited already
		}
	}
	eventually(t, waitTimeout, "only the new version runs", func() error {
		return errors.Join(servertest.Agreed(t.Context(), 2, api), state(bourse.StateStarted), alone(t, mark))
	})
}

// alone returns an error unless exactly one process runs, which must be of the new version.
func alone(t *testing.T, mark string) error {
	t.Helper()
	if old, now := pidsOf(t, mark+"old"), pidsOf(t, mark+"new"); len(old) > 0 || len(now) != 1 {
		return fmt.Errorf("old processes %v, new processes %v; want none and one", old, now)
	}
	return nil
}
