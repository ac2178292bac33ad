package drivertest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
)

// TestMemoryInBubble checks, in virtual time, that a host's tasks outlive its driver.
func TestMemoryInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := drivertest.NewMemory()
		d := host.Driver()
		id := driver.TaskID{Machine: bourse.NewMachineID(1), Boot: 1}
		if _, err := d.Start(t.Context(), driver.Task{ID: id, Command: drivertest.Script("print", "hello", "sleep", "1h", "exit", "3")}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		cut := make(chan error)
		go func() { _, err := d.Wait(context.WithoutCancel(t.Context()), id); cut <- err }()
		synctest.Wait()
		next := host.Driver()
		if code := bourse.CodeOf(<-cut); code != bourse.CodeUnavailable {
			t.Errorf("Wait of a dead daemon's driver returned %q, want unavailable", code)
		}
		if _, err := d.Start(t.Context(), driver.Task{ID: id}); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("Start of a dead daemon's driver returned %v, want unavailable", err)
		}
		exit, err := next.Wait(t.Context(), id)
		if err != nil || exit.Code != 3 || time.Since(begun) != time.Hour {
			t.Errorf("got exit %+v, %v after %s, want code 3 after 1h", exit, err, time.Since(begun))
		}
	})
}

// TestMemoryHooks checks whether a call has an effect if a hook makes it fail.
func TestMemoryHooks(t *testing.T) {
	host := drivertest.NewMemory()
	d := host.Driver()
	failure := bourse.Errorf(bourse.CodeUnavailable, "injected")
	id := driver.TaskID{Machine: bourse.NewMachineID(1), Boot: 1}
	task := driver.Task{ID: id, Command: drivertest.Script("run")}
	host.SetHooks(drivertest.Hooks{Before: func(context.Context, drivertest.Call) error { return failure }})
	if _, err := d.Start(t.Context(), task); !errors.Is(err, failure) || host.Starts() != 0 {
		t.Errorf("Before: got %v and %d starts, want the hook's error and no starts", err, host.Starts())
	}
	host.SetHooks(drivertest.Hooks{After: func(context.Context, drivertest.Call) error { return failure }})
	if _, err := d.Start(t.Context(), task); !errors.Is(err, failure) || host.Starts() != 1 {
		t.Errorf("After: got %v and %d starts, want the hook's error and one start", err, host.Starts())
	}
	if got := host.Running(); len(got) != 1 || got[0] != id {
		t.Errorf("running %v, want %v", got, id)
	}
}

// TestMemoryTerminal checks that a terminal on the host has a size and a single output stream.
func TestMemoryTerminal(t *testing.T) {
	d := drivertest.NewMemory().Driver()
	id := driver.TaskID{Machine: bourse.NewMachineID(1), Boot: 1}
	if _, err := d.Start(t.Context(), driver.Task{ID: id, Command: drivertest.Script("run")}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	got, err := d.Exec(t.Context(), id, driver.Exec{
		Command: drivertest.Script("size", "warn", "both", "exit", "5"), Stdout: &out,
		Terminal: &driver.Terminal{Size: driver.Size{Rows: 3, Cols: 4}},
	})
	if err != nil || got.Exit.Code != 5 || out.String() != "size 3 4\nboth\n" {
		t.Errorf("got %+v, %v and %q", got, err, &out)
	}
}
