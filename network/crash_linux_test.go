package network

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// crashDaemon runs a daemon that keeps machine 1, prints "ready", and then attaches and detaches
// another machine. It kills itself when it reaches the given point. If the point is "churn", it
// attaches and detaches machines until its parent process kills it.
func crashDaemon(dir, point string) int {
	ctx := context.Background()
	armed := false
	cfg := Config{Dir: dir, fault: func(at string) {
		if armed && at == point {
			_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
			select {}
		}
	}}
	n, err := Open(cfg)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	go func() { _ = n.Run(ctx, &fakeNames{}) }()
	if err := n.Recover(ctx, []Spec{machine(1, "shop", "one/")}); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, "ready")
	armed = true
	for i := 2; i == 2 || point == "churn"; i++ {
		spec := machine(2+i%4, "shop", "one/")
		if _, err := n.Attach(ctx, spec); err != nil {
			fmt.Fprintln(os.Stdout, err)
			return 1
		}
		if err := n.Detach(ctx, spec.Machine); err != nil {
			fmt.Fprintln(os.Stdout, err)
			return 1
		}
	}
	return 0
}

// runCrashDaemon starts a crashDaemon and waits until it has exited. If the daemon is still running
// when the given time has passed since it was ready, runCrashDaemon kills it.
func runCrashDaemon(t *testing.T, dir, point string, after time.Duration) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "daemon", dir, point)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Errorf("unexpected output of the daemon: %q", lines.Text())
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	for lines.Scan() {
		t.Errorf("unexpected output of the daemon: %q", lines.Text())
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the daemon exited with %v, want it killed at %q", err, point)
	}
}

// TestKilledAnywhere kills a daemon at each step and lets another one recover. The machines that
// the new daemon keeps must have complete networks, and the other machines' networks must be
// removed completely.
func TestKilledAnywhere(t *testing.T) {
	w := newWorker(t, nil)
	one, two := machine(1, "shop", "one/"), machine(4, "shop", "one/") // the second number is the one that crashDaemon uses: 2 + 2 % 4
	runCrashDaemon(t, w.cfg.Dir, "attached", time.Minute)
	points := []string{"named", "bound", "ruled", "addressed", "finished", "attached", "unlinked", "unruled", "detached"}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			w.reopen(t)
			if err := w.Recover(t.Context(), []Spec{one}); err != nil {
				t.Fatalf("Recover: %v", err)
			}
			want, was := w.inventory(t), inode(t, w.host.files.path(one.Machine))

			runCrashDaemon(t, w.cfg.Dir, point, time.Minute)
			w.reopen(t)
			if err := w.Recover(t.Context(), []Spec{one}); err != nil {
				t.Fatalf("Recover: %v", err)
			}
			if got := w.inventory(t); !cmp.Equal(want, got) {
				t.Errorf("after Recover with one machine (-want +got):\n%s", cmp.Diff(want, got))
			}
			if inode(t, w.host.files.path(one.Machine)) != was {
				t.Error("the namespace of the first machine was replaced")
			}

			runCrashDaemon(t, w.cfg.Dir, point, time.Minute)
			w.reopen(t)
			if err := w.Recover(t.Context(), []Spec{one, two}); err != nil {
				t.Fatalf("Recover: %v", err)
			}
			a, b := w.attach(t, one), w.attach(t, two)
			b.listen(t, "[::]:8080")
			if got, err := a.greeting(at(b.Address, 8080)); err != nil || !strings.HasPrefix(got, string(two.Machine)) {
				t.Errorf("connection between both machines after Recover: %q, %v", got, err)
			}
		})
	}
}

// TestKilledAnyTime is like TestKilledAnywhere, but kills the daemon at random times.
func TestKilledAnyTime(t *testing.T) {
	w := newWorker(t, nil)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	one := machine(1, "shop", "one/")
	if err := w.Recover(t.Context(), []Spec{one}); err != nil {
		t.Fatal(err)
	}
	want := w.inventory(t)
	for range 8 {
		runCrashDaemon(t, w.cfg.Dir, "churn", time.Duration(random.IntN(60_000))*time.Microsecond)
		w.reopen(t)
		if err := w.Recover(t.Context(), []Spec{one}); err != nil {
			t.Fatalf("Recover: %v", err)
		}
		if got := w.inventory(t); !cmp.Equal(want, got) {
			t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
		}
	}
}

// reopen simulates the daemon's next start.
func (w *worker) reopen(t *testing.T) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.open(t)
}

// inventory waits until the kernel has removed the spares, which takes a while after their daemon
// has died. It then returns the host's inventory.
func (w *worker) inventory(t *testing.T) inventory {
	t.Helper()
	var v inventory
	spare := func() bool {
		v = takeInventory(t, w.cfg.Dir)
		return strings.Contains(strings.Join(v.Links, "\n"), "bp")
	}
	if !eventually(func() bool { return !spare() }) {
		t.Errorf("spares remain: %v", v.Links)
	}
	return v
}
