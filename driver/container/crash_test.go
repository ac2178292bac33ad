package container

import (
	"bufio"
	"bytes"
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
	"github.com/bourse-dev/bourse/driver/logs"
)

// crashDaemon is a daemon that is to be killed: it starts, stops and destroys
// machines as fast as it can, and says on stdout what it is about to do and
// what has been acknowledged. A worker's store would hold the same.
func crashDaemon(address, dir, image, first string) error {
	keeper := logs.NewKeeper(logs.KeeperConfig{Dir: dir + "-logs", Command: keeperCommand})
	d := New(Config{Address: address, Dir: dir, Keeper: keeper})
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
	for lane := range 3 {
		wg.Go(func() {
			for i := n + lane; ; i += 3 {
				crashMachine(ctx, d, image, i, tell)
			}
		})
	}
	wg.Wait()
	return nil
}

// crashInput is how many bytes are on the stdin of a program that ends by
// itself: more than the pipes on its way can hold.
const crashInput = 300 << 10

// crashMachine is one machine's life: every fourth is left running, every
// fourth reads its stdin and ends by itself with a code that its number tells,
// every fourth is destroyed, and every fourth is stopped and forgotten.
func crashMachine(ctx context.Context, d *Driver, image string, i int, tell func(string, ...any)) {
	t := driver.Task{
		ID:    driver.TaskID{Machine: bourse.MachineID(fmt.Sprintf("000001%08x", i)), Boot: 1},
		Image: image, Command: []string{"sleep", "1000"},
	}
	if i%4 == 1 {
		t.Stdin = bytes.Repeat([]byte("x"), crashInput)
		t.Command = sh(fmt.Sprintf("[ $(wc -c) = %d ] && echo out %d; exit %d", crashInput, i, i%100))
	}
	tell("intent %s", t.ID.Machine)
	status, err := d.Start(ctx, t)
	if err != nil {
		tell("error %v", err)
		return
	}
	tell("started %s %d", t.ID.Machine, status.PID)
	switch i % 4 {
	case 2:
		tell("destroying %s", t.ID.Machine)
		err = d.Destroy(ctx, t.ID.Machine)
	case 3:
		tell("destroying %s", t.ID.Machine)
		if err = d.Stop(ctx, t.ID, "SIGTERM", 0); err == nil {
			err = d.Forget(ctx, t.ID)
		}
	default:
		return
	}
	if err != nil {
		tell("error %v", err)
		return
	}
	tell("destroyed %s", t.ID.Machine)
}

// acknowledged is what a killed daemon's store would say.
type acknowledged struct {
	intents    map[bourse.MachineID]bool
	started    map[bourse.MachineID]int // pid
	destroying map[bourse.MachineID]bool
	destroyed  map[bourse.MachineID]bool
}

// read reads what a daemon says until it is dead; started is called for each
// machine that it says has started.
func (a *acknowledged) read(t *testing.T, r io.Reader, started func()) {
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
			started()
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
	image := h.busybox(t)
	known := acknowledged{
		intents: map[bourse.MachineID]bool{}, started: map[bourse.MachineID]int{},
		destroying: map[bourse.MachineID]bool{}, destroyed: map[bourse.MachineID]bool{},
	}
	const kills = 6
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for round := range kills {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "daemon", h.cfg.Address, h.cfg.Dir, image, itoa(round*100_000))
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The moment is counted from the first life sign, or from when a few
		// machines have started.
		in := bufio.NewReader(out)
		if _, err := in.Peek(1); err != nil {
			t.Fatalf("the daemon of round %d did nothing: %v", round, err)
		}
		kill := time.NewTimer(time.Minute)
		left := round % 3 * 2
		arm := func() {
			if left--; left == -1 {
				kill.Reset(time.Duration(random.IntN(300_000)) * time.Microsecond)
			}
		}
		arm()
		go func() {
			<-kill.C
			_ = cmd.Process.Kill()
		}()
		known.read(t, in, arm)
		_ = cmd.Wait() // it was killed
		if round%3 == 2 {
			checkAcknowledged(t, h, known)
			h.close(t) // for the next daemon
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
		case n%4 == 0 && (status.Exit != nil || status.PID != pid):
			t.Errorf("%s was started as process %d and is now %+v, %+v", id, pid, status, status.Exit)
		case n%4 == 1:
			checkEnded(t, d, status.ID, n)
		}
	}
	// What a dead daemon had asked of containerd may still come, and is removed.
	eventually(t, "nothing is there but what was recovered", func() bool {
		var extra []string
		for _, what := range mine(h.server.Leftovers(), d.layout.mark()) {
			if !ofTasks(what, list) {
				extra = append(extra, what)
			}
		}
		return len(extra) == 0
	})
}

// checkEnded looks at a machine that ended by itself.
func checkEnded(t *testing.T, d *Driver, id driver.TaskID, n int) {
	t.Helper()
	if exit, err := d.Wait(t.Context(), id); err != nil || exit.Code != n%100 {
		t.Errorf("%s ended with %+v, %v, want code %d", id.Machine, exit, err, n%100)
	}
	lines := 0
	err := d.Logs(t.Context(), id.Machine, driver.LogQuery{}, func(l driver.LogLine) error {
		if l.Text == fmt.Sprintf("out %d", n) {
			lines++
		}
		return nil
	})
	if err != nil || lines != 1 {
		t.Errorf("%s has its line %d times, %v", id.Machine, lines, err)
	}
}

// ofTasks tells whether a leftover belongs to a task.
func ofTasks(what string, list []driver.Status) bool {
	for _, status := range list {
		if strings.Contains(what, taskName(status.ID)) {
			return true
		}
	}
	return false
}
