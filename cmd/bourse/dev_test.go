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

// gone waits until the processes have exited and the cluster's directory is removed.
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
	line, _ := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline")) // the process may have exited
	return itoa(pid) + " (" + strings.ReplaceAll(string(line), "\x00", " ") + ")"
}

// small contains the flags for a cluster of two workers, which starts faster than the
// default cluster.
var small = []string{"--regions", "gru,mad", "--workers", "1"}

// TestDevCleansUp stops, in various ways, a cluster that has machines, and checks that no
// process or file is left each time.
func TestDevCleansUp(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, d *devCluster){
		"Ctrl-C": func(t *testing.T, d *devCluster) {
			// A terminal sends SIGINT to the whole process group.
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
			send(t, d.server(t, "gru-1").PID, syscall.SIGSTOP) // otherwise the first signal would be enough
			send(t, d.PID, syscall.SIGINT)
			await(t, "the first signal was handled", func() bool { return !alive(d.server(t, "mad-1").PID) })
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

// TestDevRestartsAKilledServer checks that a killed server is restarted with the
// same name and address, and that its machines keep running.
func TestDevRestartsAKilledServer(t *testing.T) {
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
			t.Errorf("%s was restarted on %s and %s, want %s and %s as before", name, now.API, now.Gossip, before.API, before.Gossip)
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

func TestDevKeepsTheDataDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kept")
	for range 2 { // the second run uses the files of the first one
		d := startDev(t, append(small, "--data", dir)...)
		_, pid := d.machine(t, "mad")
		send(t, d.PID, syscall.SIGINT)
		await(t, "the cluster has ended", func() bool { return !alive(d.PID) })
		if alive(pid) {
			t.Error("a machine is still running")
		}
		if _, err := os.Stat(filepath.Join(dir, "mad-1")); err != nil {
			t.Errorf("the worker's files were not kept: %v", err)
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
		t.Errorf("port in use: %v after %s\n%s\nwant exit status 5, the address and the flag to use", err, time.Since(began), out)
	}
}
