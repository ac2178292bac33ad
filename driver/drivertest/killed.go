package drivertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Killed is a test that repeatedly kills a daemon under load, and then checks a driver that has recovered the daemon's
// tasks. The effects of all operations that a daemon reported as completed must have survived. Every machine that
// exists must have been announced by a daemon.
type Killed struct {
	// Daemon returns a command that starts a daemon: a process that calls LiveOn with first and os.Stdout.
	Daemon func(ctx context.Context, first int) *exec.Cmd
	Kills  int
	Every  int           // number of kills between two calls to Look
	Within time.Duration // maximum delay of the kill after a daemon's first output, or after the start of its second or fourth machine
	// Look recovers a driver and calls check with the driver and the recovered tasks. It may also inspect the
	// host directly.
	Look func(t *testing.T, check func(d driver.Driver, list []driver.Status))
}

// Run runs the test.
func (k Killed) Run(t *testing.T) {
	known := acknowledged{
		intents: map[bourse.MachineID]bool{}, started: map[bourse.MachineID]int{},
		destroying: map[bourse.MachineID]bool{}, destroyed: map[bourse.MachineID]bool{},
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for round := range k.Kills {
		k.kill(t, &known, round, time.Duration(random.Int64N(int64(k.Within))))
		if round%k.Every == k.Every-1 {
			k.Look(t, func(d driver.Driver, list []driver.Status) { known.check(t, d, list) })
		}
	}
	t.Logf("%d machines were started by %d daemons", len(known.started), k.Kills)
	if len(known.started) < k.Kills {
		t.Errorf("only %d machines were started, want at least %d", len(known.started), k.Kills)
	}
}

// kill starts a daemon, records in known which operations the daemon reports, and kills the daemon after a delay.
// Depending on the round, the delay begins when the daemon writes its first output, or when its second or fourth
// machine has started.
func (k Killed) kill(t *testing.T, known *acknowledged, round int, after time.Duration) {
	t.Helper()
	const numbers = 100_000 // machine numbers reserved for each daemon
	cmd := k.Daemon(t.Context(), round*numbers)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(out)
	if _, err := in.Peek(1); err != nil {
		t.Fatalf("round %d: the daemon did not print anything: %v", round, err)
	}
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	left := round % 3 * 2 // number of machine starts to wait for
	arm := func() {
		if left--; left == -1 {
			kill.Reset(after)
		}
	}
	arm()
	known.read(t, in, arm)
	_ = cmd.Wait() // an error is expected, because the process was killed
}

// acknowledged records the operations that the killed daemons reported, as a real daemon's store would.
type acknowledged struct {
	intents    map[bourse.MachineID]bool
	started    map[bourse.MachineID]int // process ids of the machines
	destroying map[bourse.MachineID]bool
	destroyed  map[bourse.MachineID]bool
}

// read parses the daemon's output until the daemon exits, and adds the operations to the records. It calls started
// whenever the daemon reports that a machine has started.
func (a *acknowledged) read(t *testing.T, r io.Reader, started func()) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		name, pid, _ := strings.Cut(rest, " ")
		id := bourse.MachineID(name)
		switch what {
		case "intent":
			a.intents[id] = true
		case "started":
			var n int
			_, _ = fmt.Sscan(pid, &n)
			a.started[id] = n
			started()
		case "destroying":
			a.destroying[id] = true
		case "destroyed":
			a.destroyed[id] = true
		default:
			t.Errorf("the daemon printed %q", lines.Text())
		}
	}
}

// check compares the records with list, the tasks that the driver d has recovered.
func (a *acknowledged) check(t *testing.T, d driver.Driver, list []driver.Status) {
	t.Helper()
	got := map[bourse.MachineID]driver.Status{}
	for _, status := range list {
		got[status.ID.Machine] = status
		if !a.intents[status.ID.Machine] {
			t.Errorf("%s exists, but no daemon announced its start", status.ID.Machine)
		}
	}
	for id, pid := range a.started {
		status, ok := got[id]
		switch fate := fateOf(id); {
		case a.destroyed[id] && ok:
			t.Errorf("destroyed machine %s: got %+v, want no such machine", id, status)
		case a.destroying[id]: // the machine may or may not exist
		case !ok:
			t.Errorf("%s was started but no longer exists", id)
		case fate == fateLeft && (status.Exit != nil || status.PID != pid):
			t.Errorf("%s was started with pid %d: got %+v with exit %+v, want it running with that pid", id, pid, status, status.Exit)
		case fate == fateEnds:
			checkEnded(t, d, status.ID)
		}
	}
}

// checkEnded checks the exit and the log of a machine whose program exits on its own.
func checkEnded(t *testing.T, d driver.Driver, id driver.TaskID) {
	t.Helper()
	n := numberOf(id.Machine)
	if exit, err := d.Wait(t.Context(), id); err != nil || exit.Code != n%100 {
		t.Errorf("exit of %s: got %+v, %v, want code %d", id.Machine, exit, err, n%100)
	}
	lines := 0
	err := d.Logs(t.Context(), id.Machine, driver.LogQuery{}, func(l driver.LogLine) error {
		if l.Text == fmt.Sprintf("out %d", n) {
			lines++
		}
		return nil
	})
	if err != nil || lines != 1 {
		t.Errorf("the log of %s: got the line %d times, error %v, want the line once", id.Machine, lines, err)
	}
}
