package process

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
)

// crashDaemon runs a daemon until the test kills it. first is the number of its first machine.
func crashDaemon(dir, first string) error {
	n, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	d := New(Config{Dir: dir, Supervisor: supervisorCommand})
	return drivertest.LiveOn(d, driver.Task{Env: []string{"PATH=" + os.Getenv("PATH")}}, n, os.Stdout)
}

func TestDaemonKilled(t *testing.T) {
	h := newHost(t, nil)
	drivertest.Killed{
		Kills: 20, Every: 5, Within: 30 * time.Millisecond,
		Daemon: func(ctx context.Context, first int) *exec.Cmd {
			return exec.CommandContext(ctx, "/proc/self/exe", "daemon", h.cfg.Dir, itoa(first))
		},
		Look: func(t *testing.T, check func(driver.Driver, []driver.Status)) {
			d, list := h.recovered(t)
			defer d.Close()
			check(d, list)
			eventually(t, "the number of processes equals the number of tasks", func() bool {
				running := 0
				for _, status := range list {
					if now, err := d.Inspect(t.Context(), status.ID); err == nil && now.Exit == nil {
						running++
					}
				}
				return h.Processes(t) == running
			})
		},
	}.Run(t)
}

// TestSupervisorKilled kills the supervisor at random moments under load. Every task must end on
// the host, and the driver must report that.
func TestSupervisorKilled(t *testing.T) {
	for _, mode := range []LimitMode{LimitsAuto, LimitsOff} {
		t.Run(string(mode), func(t *testing.T) {
			h := newHost(t, func(c *Config) { c.Limits = mode })
			d, _ := h.recovered(t)
			for range 5 {
				killUnderLoad(t, h, d)
			}
			if d.Labels()["cgroup"] == "" {
				t.Error("the new supervisor has no labels")
			}
		})
	}
}

func killUnderLoad(t *testing.T, h *host, d *Driver) {
	t.Helper()
	stop := make(chan struct{})
	var mu sync.Mutex
	var ids []driver.TaskID
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				task := program("sh", "-c", "setsid sleep 1000 & sleep 1000")
				_, err := d.Start(t.Context(), task)
				switch bourse.CodeOf(err) {
				case "":
					mu.Lock()
					ids = append(ids, task.ID)
					mu.Unlock()
				case bourse.CodeUnavailable:
				default:
					t.Errorf("Start: %v", err)
				}
			}
		})
	}
	more := func(than int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(ids) > than }
	}
	eventually(t, "some have started", more(5))
	h.KillMachinery(t)
	mu.Lock()
	before := len(ids)
	mu.Unlock()
	eventually(t, "others have started", more(before+5))
	close(stop)
	wg.Wait()
	survivors := 0
	for _, id := range ids {
		status, err := d.Inspect(t.Context(), id)
		switch {
		case err != nil:
			t.Errorf("Inspect: %v", err)
		case status.Exit == nil: // started after the new supervisor
			survivors++
		case status.Exit.Code != -1 || status.Exit.Error == "":
			t.Errorf("exit of a lost task: got %+v, want code -1 and an error", status.Exit)
		}
		if err := d.Destroy(t.Context(), id.Machine); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
	t.Logf("%d tasks, %d of them from after the kill", len(ids), survivors)
	eventually(t, "no process remains", func() bool { return h.Processes(t) == 0 })
}
