package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// TestJobsOfATerminal checks that a shell's jobs end together with their terminal, although they are in separate
// process groups.
func TestJobsOfATerminal(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sleep", "1000")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	got, err := d.Exec(t.Context(), task.ID, driver.Exec{
		Command: []string{"sh", "-c", "set -m; trap '' HUP; sleep 1000 & sleep 1000 & exit 3"}, Stdout: t.Output(),
		Terminal: &driver.Terminal{Size: driver.Size{Rows: 24, Cols: 80}},
	})
	if err != nil || got.Exit.Code != 3 {
		t.Errorf("got %+v, %v, want code 3", got, err)
	}
	eventually(t, "the jobs have ended", func() bool { return h.Processes(t) == 1 })
}

// TestTerminalWithoutItsDaemon checks that commands with terminals receive SIGHUP when the daemon dies.
func TestTerminalWithoutItsDaemon(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sleep", "1000")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "hung up")
	done := make(chan error, 1)
	go func() {
		_, err := d.Exec(t.Context(), task.ID, driver.Exec{
			Command: []string{"sh", "-c", `trap 'touch "$0"; exit' HUP; touch "$0.ready"; while :; do sleep 0.01; done`, mark}, Stdout: t.Output(),
			Terminal: &driver.Terminal{},
		})
		done <- err
	}()
	exists := func(path string) func() bool {
		return func() bool { _, err := os.Stat(path); return !errors.Is(err, os.ErrNotExist) }
	}
	eventually(t, "the command runs", exists(mark+".ready"))
	if _, got := h.recovered(t); len(got) != 1 {
		t.Errorf("recovered %+v, want the task", got)
	}
	if err := <-done; bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("Exec returned %v, want unavailable", err)
	}
	eventually(t, "the command has received SIGHUP", exists(mark))
	eventually(t, "the command has ended", func() bool { return h.Processes(t) == 1 })
}

// TestEscapeFromATerminal checks that Exec does not wait for a process that has left the session
// and holds the terminal open.
func TestEscapeFromATerminal(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sleep", "1000")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	got, err := d.Exec(t.Context(), task.ID, driver.Exec{
		Command: []string{"sh", "-c", `setsid sh -c 'touch escaped; exec sleep 1000' & while [ ! -e escaped ]; do :; done; exit 3`}, Stdout: t.Output(),
		Terminal: &driver.Terminal{},
	})
	if err != nil || got.Exit.Code != 3 {
		t.Errorf("got %+v, %v, want code 3", got, err)
	}
	if took := time.Since(begun); took > drainGrace+10*time.Second {
		t.Errorf("Exec took %s", took)
	}
}
