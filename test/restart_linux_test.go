package test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestDevRestartsServersWithoutDelay kills a server of bourse dev repeatedly. It must be restarted each time without a
// growing delay. Growing delays would have added up to 5 s.
func TestDevRestartsServersWithoutDelay(t *testing.T) {
	t.Parallel()
	const more = 2 * time.Second
	dev := servertest.StartDev(t, "--regions", "gru", "--workers", "1")
	log := followCounter(t, dev)
	for _, s := range dev.Servers {
		took := make([]time.Duration, 10)
		for n := range took {
			began := time.Now()
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			s = dev.Restarted(t, s.ID, s.PID)
			took[n] = time.Since(began)
			t.Logf("%s was ready for the %dth time after %s", s.ID, n+1, took[n].Round(time.Millisecond))
		}
		// A busy host delays some of the restarts, but a growing delay would affect all
		// later ones.
		if first, last := slices.Min(took[:5]), slices.Min(took[5:]); last > first+more {
			t.Errorf("the fastest of the later restarts of %s took %s, want at most %s more than the fastest of the first five (%s)", s.ID, last, more, first)
		}
	}
	order := bourse.NewOrderID() // a restarted broker may not know its members yet
	eventually(t, waitTimeout, "an order is filled", func() error {
		_, err := dev.Client().Create(t.Context(), app, sleeper("gru", "bourse-restart"), order)
		return err
	})
	log.check(t)
}

// followed collects the output of "machine logs -f" for a program that counts.
type followed struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (f *followed) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.Write(b)
}

// lines returns the numbers printed so far.
func (f *followed) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Fields(f.text.String())
}

// followCounter starts a program that counts and a command that follows its output.
func followCounter(t *testing.T, dev *servertest.Dev) *followed {
	t.Helper()
	counter := sleeper("gru", "bourse-counts")
	counter.Config.Init.Exec[2] = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done"
	m, err := dev.Client().Create(t.Context(), app, counter, bourse.NewOrderID())
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{}
	cmd := exec.Command(servertest.Program, "--api", dev.API, "machine", "logs", "-f", "-a", string(app), string(m.ID))
	cmd.Stdout, cmd.Stderr = f, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // the command may have failed already
		_ = cmd.Wait()                       // the command exits because of the interrupt
	})
	eventually(t, waitTimeout, "the first line of the log arrives", func() error {
		if len(f.lines()) == 0 {
			return errors.New("no line has arrived")
		}
		return nil
	})
	return f
}

// check checks that each line was printed exactly once, and that more lines follow.
func (f *followed) check(t *testing.T) {
	t.Helper()
	now := len(f.lines())
	eventually(t, waitTimeout, "further lines of the log arrive", func() error {
		if len(f.lines()) <= now {
			return errors.New("no further line has arrived")
		}
		return nil
	})
	for i, n := range f.lines() {
		if n != strconv.Itoa(i+1) {
			t.Fatalf("line %d contains number %s, want %[1]d: lines were lost or printed twice", i+1, n)
		}
	}
}

// TestInterruptedDestroyIsAnsweredWhenRepeated interrupts a destroy by killing the worker, and repeats the request
// until it is answered. The answer must be 200 or 404 soon after the worker is back, and the machine must be gone.
func TestInterruptedDestroyIsAnsweredWhenRepeated(t *testing.T) {
	t.Parallel()
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	worker, _ := newWorker(t, "w1", "gru", "--join", broker.Addr)
	startAll(t, worker)
	worker.Settle()
	api := client(t, broker)
	eventually(t, waitTimeout, "the servers know each other", func() error { return servertest.Agreed(t.Context(), 2, api) })
	mark := markOf(t)
	for n := range 5 {
		m := create(t, api, sleeper("gru", mark))
		first := make(chan error, 1)
		go func() {
			first <- api.Destroy(t.Context(), app, m.ID, machinesapi.DestroyMachine{Force: true}, "")
		}()
		pause(t.Context(), time.Duration(n)*2*time.Millisecond) // the kill comes at a different moment each time
		if err := worker.Kill(); err != nil {
			t.Fatal(err)
		}
		cut := <-first
		if err := api.Destroy(t.Context(), app, m.ID, machinesapi.DestroyMachine{Force: true}, ""); !unanswered(err) {
			t.Errorf("destroy machine %s while its worker is down: %v, want 503 or 408", m.ID, err)
		}
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		took := eventually(t, waitTimeout, "the repeated destroy is answered", func() error {
			err := api.Destroy(t.Context(), app, m.ID, machinesapi.DestroyMachine{Force: true}, "")
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return nil
			}
			return err
		})
		t.Logf("first answer %v; final answer %s after the worker was ready", cut, took.Round(time.Millisecond))
		if pids := pidsOf(t, mark); len(pids) > 0 {
			t.Errorf("machine %s is destroyed, but processes %v still run", m.ID, pids)
		}
	}
}
