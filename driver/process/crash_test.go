package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// crashDaemon is a daemon that is to be killed: it starts, stops and destroys
// machines as fast as it can, and says on stdout what it is about to do and
// what has been acknowledged. A worker's store would hold the same.
func crashDaemon(dir, first string) error {
	d := New(Config{Dir: dir, Supervisor: supervisorCommand})
	ctx := context.Background()
	if _, err := d.Recover(ctx); err != nil {
		return err
	}
	var mu sync.Mutex
	tell := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", args...) // one write, so a kill cannot tear it
	}
	var n int
	if _, err := fmt.Sscan(first, &n); err != nil {
		return err
	}
	var wg sync.WaitGroup
	for lane := range 4 {
		wg.Go(func() {
			for i := n + lane; ; i += 4 {
				crashMachine(ctx, d, i, tell)
			}
		})
	}
	wg.Wait()
	return nil
}

// crashMachine is one machine's life: every third is left running, every third
// ends by itself with a code that its number tells, every third is destroyed.
func crashMachine(ctx context.Context, d *Driver, i int, tell func(string, ...any)) {
	t := driver.Task{
		ID:      driver.TaskID{Machine: bourse.MachineID(fmt.Sprintf("000001%08x", i)), Boot: 1},
		Command: []string{"sleep", "1000"},
		Env:     []string{"PATH=" + os.Getenv("PATH")},
	}
	if i%3 == 1 {
		t.Command = []string{"sh", "-c", fmt.Sprintf("echo out %d; exit %d", i, i%100)}
	}
	tell("intent %s", t.ID.Machine)
	status, err := d.Start(ctx, t)
	if err != nil {
		tell("error %v", err)
		return
	}
	tell("started %s %d", t.ID.Machine, status.PID)
	if i%3 == 2 {
		tell("destroying %s", t.ID.Machine)
		if err := d.Destroy(ctx, t.ID.Machine); err != nil {
			tell("error %v", err)
			return
		}
		tell("destroyed %s", t.ID.Machine)
	}
}

// acknowledged is what a killed daemon's store would say.
type acknowledged struct {
	intents    map[bourse.MachineID]bool
	started    map[bourse.MachineID]int // pid
	destroying map[bourse.MachineID]bool
	destroyed  map[bourse.MachineID]bool
}

func (a *acknowledged) read(t *testing.T, r io.Reader) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		id := bourse.MachineID(fields[1])
		switch fields[0] {
		case "intent":
			a.intents[id] = true
		case "started":
			var pid int
			_, _ = fmt.Sscan(fields[2], &pid)
			a.started[id] = pid
		case "destroying":
			a.destroying[id] = true
		case "destroyed":
			a.destroyed[id] = true
		default:
			t.Errorf("the daemon said %q", lines.Text())
		}
	}
}

// TestDaemonKilled kills a daemon under load again and again. What it had been
// told must be so for the next; what it had not even meant to do must not be.
func TestDaemonKilled(t *testing.T) {
	h := newHost(t, nil)
	known := acknowledged{
		intents: map[bourse.MachineID]bool{}, started: map[bourse.MachineID]int{},
		destroying: map[bourse.MachineID]bool{}, destroyed: map[bourse.MachineID]bool{},
	}
	const kills = 20
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for round := range kills {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "daemon", h.cfg.Dir, itoa(round*100_000))
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The moment is counted from the first life sign.
		in := bufio.NewReader(out)
		if _, err := in.Peek(1); err != nil {
			t.Fatalf("the daemon of round %d did nothing: %v", round, err)
		}
		kill := time.AfterFunc(time.Duration(random.IntN(30_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		known.read(t, in)
		kill.Stop()
		_ = cmd.Wait() // it was killed
		if round%5 == 4 {
			checkAcknowledged(t, h, known)
		}
	}
	t.Logf("%d machines were started in %d lives", len(known.started), kills)
	if len(known.started) < kills {
		t.Errorf("only %d machines were started: the test shows nothing", len(known.started))
	}
}

func checkAcknowledged(t *testing.T, h *host, known acknowledged) {
	t.Helper()
	d, list := h.recovered(t)
	defer d.Close()
	got := map[bourse.MachineID]driver.Status{}
	for _, status := range list {
		got[status.ID.Machine] = status
		if !known.intents[status.ID.Machine] {
			t.Errorf("%s exists without an intent", status.ID.Machine)
		}
	}
	for id, pid := range known.started {
		var n int
		_, _ = fmt.Sscanf(string(id), "000001%x", &n)
		status, ok := got[id]
		switch {
		case known.destroyed[id] && ok:
			t.Errorf("%s was destroyed and is there again: %+v", id, status)
		case known.destroying[id]: // both are right
		case !ok:
			t.Errorf("%s was started and is gone", id)
		case n%3 == 0 && (status.Exit != nil || status.PID != pid):
			t.Errorf("%s was started as process %d and is now %+v", id, pid, status)
		case n%3 == 1:
			if exit, err := d.Wait(t.Context(), status.ID); err != nil || exit.Code != n%100 {
				t.Errorf("%s ended with %+v, %v, want code %d", id, exit, err, n%100)
			}
			lines := 0
			err := d.Logs(t.Context(), id, driver.LogQuery{}, func(l driver.LogLine) error {
				if l.Text == fmt.Sprintf("out %d", n) {
					lines++
				}
				return nil
			})
			if err != nil || lines != 1 {
				t.Errorf("%s has its line %d times, %v", id, lines, err)
			}
		}
	}
	eventually(t, "as many processes run as tasks", func() bool {
		running := 0
		for _, status := range list {
			if now, err := d.Inspect(t.Context(), status.ID); err == nil && now.Exit == nil {
				running++
			}
		}
		return h.Processes(t) == running
	})
}

// TestSupervisorKilled kills the supervisor at random moments under load.
// Every task must end for the driver, and for the host.
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
		case status.Exit == nil: // started after the new supervisor came
			survivors++
		case status.Exit.Code != -1 || status.Exit.Error == "":
			t.Errorf("exit %+v of a lost task, want code -1 and why", status.Exit)
		}
		if err := d.Destroy(t.Context(), id.Machine); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
	t.Logf("%d tasks, %d of them from after the kill", len(ids), survivors)
	eventually(t, "no process is left", func() bool { return h.Processes(t) == 0 })
}
