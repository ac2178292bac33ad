package container

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// TestContainerdRestarted kills and restarts containerd while containers are running and ending. The driver must not
// report anything untrue in the meantime, and must not lose any exits or output.
func TestContainerdRestarted(t *testing.T) {
	server := containerdtest.New(t)
	h := newHostOn(t, server, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	runs, ends := order(image, sh(runScript)...), order(image, sh("echo before; sleep 0.5; echo after; exit 5")...)
	began := map[driver.TaskID]driver.Status{}
	for _, o := range []driver.Task{runs, ends} {
		status, err := d.Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		began[o.ID] = status
	}
	exit := make(chan bourse.Exit, 1)
	go func() {
		e, err := d.Wait(t.Context(), ends.ID)
		if err != nil {
			t.Errorf("Wait: %v", err)
		}
		exit <- e
	}()
	server.Kill(t)
	// The program ends while containerd is down.
	eventually(t, "the program has ended", func() bool { return h.Processes(t) == 1 })
	if status, err := d.Inspect(t.Context(), runs.ID); err != nil || status != began[runs.ID] {
		t.Errorf("without containerd: got %+v, %v, want %+v", status, err, began[runs.ID])
	}
	for what, err := range map[string]error{
		"Start":   second(d.Start(t.Context(), order(image, "true"))),
		"Signal":  d.Signal(t.Context(), runs.ID, "SIGUSR1"),
		"Stop":    d.Stop(t.Context(), runs.ID, "SIGTERM", time.Second),
		"Exec":    second(d.Exec(t.Context(), runs.ID, driver.Exec{Command: []string{"true"}})),
		"Destroy": d.Destroy(t.Context(), runs.ID.Machine),
	} {
		if got := bourse.CodeOf(err); got != bourse.CodeUnavailable {
			t.Errorf("%s without containerd returned %q (%v), want unavailable", what, got, err)
		}
	}
	if u, err := d.Usage(t.Context(), runs.ID); err != nil || u.PIDs < 1 {
		t.Errorf("usage without containerd: got %+v, %v", u, err)
	}
	server.Restart(t)
	if e := <-exit; e.Code != 5 {
		t.Errorf("exit of a program that ended while containerd was down: got %+v, want code 5", e)
	}
	if got := texts(t, d, ends.ID.Machine); len(got) != 2 || got[1] != "after" {
		t.Errorf("log: got %q, want it to include the lines that were printed while containerd was down", got)
	}
	eventually(t, "containerd answers again", func() bool { return d.Stop(t.Context(), runs.ID, "SIGTERM", 5*time.Second) == nil })
	if e, err := d.Wait(t.Context(), runs.ID); err != nil || e.Signal != 15 {
		t.Errorf("got exit %+v, %v, want SIGTERM", e, err)
	}
}

// second returns its second argument, for example the error from a call with two results.
func second[T any](_ T, err error) error { return err }

// texts returns the lines of a machine's log.
func texts(t testing.TB, d *Driver, id bourse.MachineID) []string {
	t.Helper()
	var out []string
	if err := d.Logs(context.WithoutCancel(t.Context()), id, driver.LogQuery{}, func(l driver.LogLine) error { out = append(out, l.Text); return nil }); err != nil {
		t.Fatalf("Logs: %v", err)
	}
	return out
}

// TestContainerdKilledUnderLoad kills containerd during starts and stops. A container that was reported as started must
// be running. A failed start must not leave anything behind.
func TestContainerdKilledUnderLoad(t *testing.T) {
	server := containerdtest.New(t)
	h := newHostOn(t, server, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	for range 2 {
		killUnderLoad(t, server, d, image)
	}
	// Once containerd is back, the driver removes everything that it could not remove before.
	eventually(t, "all objects of the driver are removed", func() bool {
		return len(mine(server.Leftovers(), d.layout.mark())) == 0 && len(d.remainsOf("")) == 0
	})
}

func killUnderLoad(t *testing.T, server *containerdtest.Server, d *Driver, image string) {
	t.Helper()
	stop := make(chan struct{})
	var mu sync.Mutex
	var running, failed []driver.TaskID
	var wg sync.WaitGroup
	for lane := range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				o := order(image, sh(runScript)...)
				_, err := d.Start(t.Context(), o)
				if err == nil && lane == 0 {
					_ = d.Destroy(t.Context(), o.ID.Machine) // the error does not matter here
				}
				mu.Lock()
				switch {
				case bourse.CodeOf(err) == bourse.CodeUnavailable:
					failed = append(failed, o.ID)
				case err != nil:
					t.Errorf("Start: %v", err)
				default:
					running = append(running, o.ID)
				}
				mu.Unlock()
			}
		})
	}
	count := func(list *[]driver.TaskID, more int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(*list) > more }
	}
	eventually(t, "some have started", count(&running, 3))
	server.Kill(t)
	eventually(t, "starts fail", count(&failed, 2))
	close(stop)
	wg.Wait()
	server.Restart(t)
	for _, id := range running {
		if status, err := d.Inspect(t.Context(), id); err == nil && status.Exit != nil && status.Exit.Error != "" {
			t.Errorf("%v was lost: got exit %+v", id, status.Exit)
		}
		eventually(t, "destroyed", func() bool { return d.Destroy(t.Context(), id.Machine) == nil })
	}
	for _, id := range failed {
		if _, err := d.Inspect(t.Context(), id); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("a failed start left a task: %v", err)
		}
	}
}
