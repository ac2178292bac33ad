package serve_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
)

// notes records everything that was printed, with the time since the start.
type notes struct {
	begun time.Time
	list  []string
}

func (n *notes) Line(task string, l driver.LogLine) { n.add(task + "|" + l.Text) }
func (n *notes) Say(task, text string)              { n.add(task + "*" + text) }
func (n *notes) add(text string) {
	n.list = append(n.list, fmt.Sprintf("%v %s", time.Since(n.begun), text))
}

// of returns everything that was printed about a task.
func (n *notes) of(task string) (out []string) {
	for _, line := range n.list {
		if _, text, _ := strings.Cut(line, " "); strings.HasPrefix(text, task+"|") || strings.HasPrefix(text, task+"*") {
			out = append(out, line)
		}
	}
	return out
}

func task(name string, restart bourse.RestartPolicy, words ...string) serve.Task {
	return serve.Task{Name: name, Command: words, Restart: restart}
}

// supervised runs tasks on an in-memory host until all have ended, or until limit has
// passed.
func supervised(t *testing.T, limit time.Duration, tasks ...serve.Task) (*notes, []string, *drivertest.Memory) {
	t.Helper()
	host := drivertest.NewMemory()
	d := host.Driver()
	if _, err := d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	n := &notes{begun: time.Now()}
	failed, err := serve.Run(ctx, serve.Config{Runner: d, Tasks: tasks, Print: n})
	if err != nil {
		t.Fatal(err)
	}
	return n, failed, host
}

func TestRestartPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, failed, _ := supervised(t, time.Hour,
			task("good", bourse.RestartOnFailure, "print", "a", "exit", "0"),
			task("bad", bourse.RestartNo, "exit", "3"),
			task("missing", bourse.RestartNo, "missing"),
			task("flaky", bourse.RestartOnFailure, "exit", "1"),
			task("busy", bourse.RestartAlways, "sleep", "1s"),
		)
		if diff := cmp.Diff([]string{"bad", "missing", "flaky", "busy"}, failed); diff != "" {
			t.Errorf("failed (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"0s good*ended with exit code 0", "0s good|a"}, slices.Sorted(slices.Values(n.of("good")))); diff != "" {
			t.Errorf("good (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"0s bad*ended with exit code 3"}, n.of("bad")); diff != "" {
			t.Errorf("bad (-want +got):\n%s", diff)
		}
		flaky := n.of("flaky")
		if len(flaky) != 1+bourse.DefaultMaxRetries || flaky[1] != "100ms flaky*ended with exit code 1; restarting in 200ms" ||
			!strings.Contains(flaky[len(flaky)-1], "not restarting it") {
			t.Errorf("flaky: %q, want %d restarts with doubled delays, and then none", flaky, bourse.DefaultMaxRetries)
		}
	})
}

// TestEveryLineIsPrintedOnce checks that a task's output is printed once and in order across all
// its restarts, up to the last line.
func TestEveryLineIsPrintedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _, _ := supervised(t, time.Hour, task("a", bourse.RestartOnFailure, "lines", "0", "500", "sleep", "1s", "lines", "500", "1000", "exit", "1"))
		var lines []string
		for _, l := range n.of("a") {
			if _, text, ok := strings.Cut(l, "|"); ok {
				lines = append(lines, text)
			}
		}
		if want := 1000 * (1 + bourse.DefaultMaxRetries); len(lines) != want {
			t.Fatalf("%d lines, want %d", len(lines), want)
		}
		for i, l := range lines {
			if want := fmt.Sprintf("line %d", i%1000); l != want {
				t.Fatalf("line %d is %q, want %q", i, l, want)
			}
		}
	})
}

// TestStop checks that all tasks stop when the context is done, including those that
// wait for a restart or ignore signals, and that they do not count as failed.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, failed, host := supervised(t, time.Minute,
			task("a", bourse.RestartAlways, "run"),
			task("b", bourse.RestartAlways, "ignore", "run"),
			task("c", bourse.RestartAlways, "sleep", "20s", "exit", "1"),
			task("d", bourse.RestartNo, "sleep", "1s"),
		)
		if len(failed) > 0 {
			t.Errorf("failed: %q, want none", failed)
		}
		if took := time.Since(begun); took != time.Minute+bourse.DefaultStopTimeout {
			t.Errorf("stopping took %s, want one minute plus the stop timeout of b", took)
		}
		if left := host.Running(); len(left) > 0 {
			t.Errorf("%v are still running", left)
		}
	})
}
