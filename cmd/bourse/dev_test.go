package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// gone fails unless the processes and the cluster's directory disappear.
func (d *devCluster) gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		await(t, "process "+describe(pid)+" is gone", func() bool { return !alive(pid) })
	}
	await(t, "directory "+d.Data+" is gone", func() bool {
		_, err := os.Stat(d.Data)
		return errors.Is(err, os.ErrNotExist)
	})
}

func describe(pid int) string {
	line, _ := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline")) // it may be gone
	return itoa(pid) + " (" + strings.ReplaceAll(string(line), "\x00", " ") + ")"
}

// small is a cluster of two workers: as good as six, and faster.
var small = []string{"--regions", "gru,mad", "--workers", "1"}

// TestDevLeavesNothing ends a cluster with machines in every way that there
// is, and looks for processes and files.
func TestDevLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, d *devCluster){
		"Ctrl-C": func(t *testing.T, d *devCluster) {
			// A terminal sends it to the whole process group.
			if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		},
		"SIGTERM": func(t *testing.T, d *devCluster) { send(t, d.PID, syscall.SIGTERM) },
		"kill -9": func(t *testing.T, d *devCluster) { send(t, d.PID, syscall.SIGKILL) },
		"kill -9 of the process that runs the cluster": func(t *testing.T, d *devCluster) {
			for _, pid := range family(t, d.PID) {
				if slices.Contains(family(t, pid), d.server(t, "broker").PID) {
					send(t, pid, syscall.SIGKILL)
				}
			}
		},
		"Ctrl-C while a worker hangs": func(t *testing.T, d *devCluster) {
			send(t, d.server(t, "gru-1").PID, syscall.SIGSTOP)
			send(t, d.PID, syscall.SIGINT)
		},
		"kill -9 while a worker hangs": func(t *testing.T, d *devCluster) {
			send(t, d.server(t, "gru-1").PID, syscall.SIGSTOP)
			send(t, d.PID, syscall.SIGKILL)
		},
		"two signals": func(t *testing.T, d *devCluster) {
			send(t, d.server(t, "gru-1").PID, syscall.SIGSTOP) // or the first would do
			send(t, d.PID, syscall.SIGINT)
			await(t, "the first signal was taken", func() bool { return !alive(d.server(t, "mad-1").PID) })
			send(t, d.PID, syscall.SIGINT)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDev(t, small...)
			_, one := d.machine(t, "gru")
			_, two := d.machine(t, "mad")
			pids := append(family(t, d.PID), d.PID, one, two)
			if len(pids) < 3+3 {
				t.Fatalf("only %d processes found", len(pids))
			}
			end(t, d)
			d.gone(t, pids)
		})
	}
}

func send(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("send %s to %d: %v", signal, pid, err)
	}
}

// TestDevStartsAKilledServerAgain: under the same name and address, and its
// machines go on.
func TestDevStartsAKilledServerAgain(t *testing.T) {
	t.Parallel()
	d := startDev(t, small...)
	id, pid := d.machine(t, "gru")
	for _, name := range []string{"gru-1", "broker", "gru-1"} {
		before := d.server(t, name)
		send(t, before.PID, syscall.SIGKILL)
		await(t, name+" is back", func() bool {
			return d.read() == nil && d.server(t, name).PID != before.PID
		})
		if now := d.server(t, name); now.API != before.API || now.Gossip != before.Gossip {
			t.Errorf("%s is back on %s and %s, want %s and %s as before", name, now.API, now.Gossip, before.API, before.Gossip)
		}
		await(t, "the machine is listed again", func() bool {
			out, err := exec.CommandContext(t.Context(), "bourse", "--api", d.API, "machine", "status", id).Output()
			return err == nil && strings.Contains(string(out), "started") && strings.Contains(string(out), itoa(pid))
		})
	}
	if !alive(pid) {
		t.Error("the machine did not survive its worker")
	}
}

func TestDevKeepsItsDirectoryWhenTold(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	for range 2 { // the second time with what the first has left
		d := startDev(t, append(small, "--data", dir)...)
		_, pid := d.machine(t, "mad")
		send(t, d.PID, syscall.SIGINT)
		await(t, "the cluster has ended", func() bool { return !alive(d.PID) })
		if alive(pid) {
			t.Error("a machine is left")
		}
		if _, err := os.Stat(filepath.Join(dir, "mad-1")); err != nil {
			t.Errorf("the worker's files: %v, want them kept", err)
		}
	}
}

func TestDevPortTaken(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), "bourse", "dev", "--api", l.Addr().String()).CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 5 || !strings.Contains(string(out), "--api") || !strings.Contains(string(out), l.Addr().String()) {
		t.Errorf("a port that is taken: %v after %s\n%s\nwant exit status 5, the address and the flag to use", err, time.Since(began), out)
	}
}
