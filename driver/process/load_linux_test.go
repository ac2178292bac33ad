package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// halted has a task prepared until its program stands loaded, and gives its
// process.
func (h *host) halted(t *testing.T, task driver.Task) int {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		h.d.Prepare(task) // there may have been no thread before
		if p := h.d.prepared.get(task.ID); p == nil || len(p.answer) == 0 {
			continue
		}
		for _, pid := range marked(h.d.layout.mark()) {
			if stateOf(pid) == "t" {
				return pid
			}
		}
	}
	t.Fatal("no program has been loaded")
	return 0
}

// stateOf gives a process's state as proc(5) has it, "" when it is gone.
func stateOf(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if s := stateOf(pid); s == "" || s == "Z" {
			return
		}
	}
	t.Errorf("process %d is %q, want it gone", pid, stateOf(pid))
}

// eachGrouping runs a test with the host's cgroups and without.
func eachGrouping(t *testing.T, test func(t *testing.T, h *host)) {
	for name, change := range map[string]func(*Config){"cgroups": nil, "none": func(c *Config) { c.Limits = LimitsOff }} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, change)
			h.recovered(t)
			test(t, h)
		})
	}
}

// writer gives a task whose program leaves a file.
func writer(t *testing.T) (task driver.Task, path string) {
	path = filepath.Join(t.TempDir(), "ran")
	return program("/bin/sh", "-c", "echo ran > "+path+"; exec sleep 1000"), path
}

func TestALoadedProgramRunsWhenItIsStarted(t *testing.T) {
	eachGrouping(t, func(t *testing.T, h *host) {
		task, path := writer(t)
		pid := h.halted(t, task)
		if _, err := os.Stat(path); err == nil {
			t.Error("the program has run before its start")
		}
		before := time.Now().UTC()
		status, err := h.d.Start(t.Context(), task)
		if err != nil || status.PID != pid || status.StartedAt.Before(before) {
			t.Errorf("Start gave %+v, %v, want process %d started now", status, err, pid)
		}
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
			if _, err := os.Stat(path); err == nil {
				break
			}
		}
		if _, err := os.Stat(path); err != nil {
			t.Error("the program has not run")
		}
		if usage, err := h.d.Usage(t.Context(), task.ID); err != nil || usage.PIDs == 0 {
			t.Errorf("Usage gave %+v, %v", usage, err)
		}
	})
}

// Whoever dies, the program has never run.
func TestALoadedProgramDiesUnrun(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *host){
		"destroyed":           func(t *testing.T, h *host) { _ = h.d.Destroy(t.Context(), someMachine) },
		"the daemon is gone":  func(_ *testing.T, h *host) { _ = h.d.Close() },
		"another daemon":      func(t *testing.T, h *host) { h.recovered(t) },
		"supervisor killed":   func(t *testing.T, h *host) { h.KillMachinery(t) },
		"supervisor is ended": func(t *testing.T, h *host) { _ = syscall.Kill(h.supervisor(t), syscall.SIGTERM) },
		"nobody has come": func(_ *testing.T, h *host) {
			h.d.expire(h.d.prepared.get(driver.TaskID{Machine: someMachine, Boot: 1}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachGrouping(t, func(t *testing.T, h *host) {
				task, path := writer(t)
				task.ID.Machine = someMachine
				pid := h.halted(t, task)
				end(t, h)
				awaitGone(t, pid)
				if _, err := os.Stat(path); err == nil {
					t.Error("the program has run")
				}
			})
		})
	}
}

// The daemon has told others that the task runs when it writes the go: what it
// has written before it died is done, whatever comes after.
func TestAGoOutlivesItsDaemon(t *testing.T) {
	eachGrouping(t, func(t *testing.T, h *host) {
		task, _ := writer(t)
		h.halted(t, task)
		status, err := h.d.Start(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		_, got := h.recovered(t)
		if len(got) != 1 || got[0] != status {
			t.Errorf("recovered %+v, want %+v", got, status)
		}
	})
}

// A loaded program may be killed by anybody: then it has started and ended.
func TestALoadedProgramIsKilledBeforeItsStart(t *testing.T) {
	eachGrouping(t, func(t *testing.T, h *host) {
		task, path := writer(t)
		pid := h.halted(t, task)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if _, err := h.d.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		exit, err := h.d.Wait(t.Context(), task.ID)
		if err != nil || exit.Signal != int(syscall.SIGKILL) {
			t.Errorf("exit %+v, %v, want SIGKILL", exit, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the program has run")
		}
	})
}

// A go for what is not there any more is answered by its end.
func TestAGoForNothing(t *testing.T) {
	h := newHost(t, nil)
	h.recovered(t)
	task, _ := writer(t)
	h.halted(t, task)
	p := h.d.prepared.get(task.ID)
	if err := p.link.write(&request{Op: opDrop, Task: task.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	exit, err := h.d.Wait(t.Context(), task.ID)
	if err != nil || exit.Code != -1 || exit.Error == "" {
		t.Errorf("exit %+v, %v, want code -1 and why", exit, err)
	}
}

// What a traced program would not be given is not taken from it.
func TestAProgramWithPrivilegesIsNotLoaded(t *testing.T) {
	plain, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip(err)
	}
	for name, mark := range map[string]func(path string) error{
		"setuid": func(path string) error { return os.Chmod(path, 0o755|os.ModeSetuid) },
		"setgid": func(path string) error { return os.Chmod(path, 0o755|os.ModeSetgid) },
		"capable": func(path string) error { // CAP_NET_RAW, permitted and effective
			return unix.Setxattr(path, "security.capability", []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(path, plain, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := mark(path); err != nil {
				t.Skip(err)
			}
			h := newHost(t, nil)
			h.recovered(t)
			task := program(path, "1000")
			sp, err := specOf(task)
			if err != nil {
				t.Fatal(err)
			}
			_, err = h.d.link.call(t.Context(), &request{Op: opPrepare, Start: sp}, nil)
			if bourse.CodeOf(err) != bourse.CodeUnavailable {
				t.Errorf("prepare gave %v, want unavailable", err)
			}
			if _, err := h.d.Start(t.Context(), task); err != nil {
				t.Errorf("Start: %v", err)
			}
		})
	}
}

// Where tracing is not permitted it is not tried again.
func TestWhereNothingCanBeTraced(t *testing.T) {
	var c children
	c.refuse(startError("x", &surroundings{}, syscall.ENOENT))
	if c.untraceable.Load() {
		t.Error("a missing program forbids loading others")
	}
	c.refuse(startError("x", &surroundings{}, syscall.EPERM))
	if !c.untraceable.Load() {
		t.Error("what is not permitted is tried again")
	}
}

// What comes for a task right behind its hint finds it, however late a thread
// comes to load it: the supervisor has entered it before it reads on.
func TestAHintIsNotOvertaken(t *testing.T) {
	for name, behind := range map[string]func(sp *spec) *request{
		"destroyed": func(sp *spec) *request { return &request{Op: opDestroy, Machine: sp.ID.Machine} },
		"dropped":   func(sp *spec) *request { return &request{Op: opDrop, Task: sp.ID} },
	} {
		t.Run(name, func(t *testing.T) {
			eachGrouping(t, func(t *testing.T, h *host) {
				first, _ := writer(t)
				pid := h.halted(t, first) // else this would show nothing
				if err := h.d.Destroy(t.Context(), first.ID.Machine); err != nil {
					t.Fatal(err)
				}
				awaitGone(t, pid)
				loaded := 0
				for range 200 {
					task, path := writer(t)
					sp, err := specOf(task)
					if err != nil {
						t.Fatal(err)
					}
					hint, err := h.d.link.send(&request{Op: opPrepare, Start: sp}, nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := h.d.link.write(behind(sp)); err != nil {
						t.Fatal(err)
					}
					if r := <-hint; r != nil && r.Error == nil {
						loaded++
						awaitGone(t, r.Status.PID)
					}
					if _, err := os.Stat(path); err == nil {
						t.Error("the program has run")
					}
				}
				t.Logf("%d of 200 were executed before they were dropped", loaded)
			})
		})
	}
}
