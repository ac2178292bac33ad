package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// leavesOnHost lists everything that dev clusters have left on this host: containerd
// namespaces with their contents, and mounts below a cluster's directory.
func (d *devCluster) leavesOnHost(t *testing.T, server *containerdtest.Server) []string {
	t.Helper()
	left, err := server.Client(t, "").NamespaceService().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, d.Data) {
			left = append(left, line)
		}
	}
	return append(left, server.Leftovers()...)
}

// TestDevCleansUpImages stops a cluster that has pulled images and runs containers. The
// cluster's containerd namespaces must be removed with their contents, and no worker
// may fail while stopping. If all processes are killed, the next cluster must clean up.
func TestDevCleansUpImages(t *testing.T) {
	t.Parallel()
	server := containerdtest.New(t)
	registry := registrytest.Start(t, registrytest.Options{})
	pushed := registry.Push(t, "sleeper:1", registrytest.Image{
		Layers: []registrytest.Layer{registrytest.Busybox(t)}, Config: ocispec.ImageConfig{Cmd: []string{"/bin/sleep", "600"}},
	})
	idle := registry.Push(t, "idle:1", registrytest.Image{Layers: []registrytest.Layer{registrytest.Random(1, 1<<20)}})
	inner := func(d *devCluster) int { // returns the process that runs the cluster
		for _, pid := range family(t, d.PID) {
			if slices.Contains(family(t, pid), d.server(t, "broker").PID) {
				return pid
			}
		}
		t.Fatal("no process runs the cluster")
		return 0
	}
	for name, end := range map[string]func(d *devCluster){
		"SIGTERM": func(d *devCluster) { send(t, d.PID, syscall.SIGTERM) },
		"Ctrl-C while a worker hangs": func(d *devCluster) {
			send(t, d.server(t, "gru-1").PID, syscall.SIGSTOP)
			send(t, d.PID, syscall.SIGINT)
		},
		"Ctrl-C again and again while the cluster hangs": func(d *devCluster) {
			send(t, inner(d), syscall.SIGSTOP)
			await(t, "it kills everything", func() bool {
				send(t, d.PID, syscall.SIGINT)
				return strings.Contains(d.output.String(), "killing everything")
			})
		},
		"kill -9 of both, and another start": func(d *devCluster) {
			both := []int{inner(d), d.PID}
			servers := family(t, d.PID)
			for _, pid := range both {
				send(t, pid, syscall.SIGKILL)
			}
			for _, pid := range servers {
				await(t, "process "+describe(pid)+" is gone", func() bool { return !alive(pid) })
			}
			startDev(t, append(small, "--containerd", server.Address)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var d *devCluster
			t.Cleanup(func() { // runs after all output was written
				if d == nil { // the cluster did not become ready
					return
				}
				if said := d.output.String(); strings.Contains(said, "failed while stopping") {
					t.Errorf("a server failed while stopping:\n%s", said)
				}
			})
			d = startDev(t, append(small, "--containerd", server.Address)...)
			d.run(t, "image", "pull", idle.Name)
			d.run(t, "machine", "run", pushed.Name, "--region", "gru", "--vm-memory", "64MiB")
			pids := append(family(t, d.PID), d.PID)
			end(d)
			d.gone(t, pids)
			if left := d.leavesOnHost(t, server); len(left) > 0 {
				t.Errorf("left on the host: %q", left)
			}
		})
	}
}

// TestSweepEndsShims ends a shim that containerd has lost track of, as after a worker was killed while
// containerd was deleting a container's task for it. A shim in another cluster's namespace keeps running.
func TestSweepEndsShims(t *testing.T) {
	t.Parallel()
	server := containerdtest.New(t)
	image := containerdtest.MustBuild(t, containerdtest.Busybox(t), ocispec.ImageConfig{})
	unique := "bourse-" + strings.ToLower(rand.Text())
	prefixes := []string{unique + "-1-", unique + "-2-"}
	for _, prefix := range prefixes {
		t.Cleanup(func() { // runc does not know that its container has ended
			if err := os.RemoveAll("/run/containerd/runc/" + prefix + "gru-1"); err != nil {
				t.Error(err)
			}
		})
		ref := server.Import(t, prefix+"gru-1", "test.local/busybox", image)
		run := exec.CommandContext(t.Context(), "ctr", "--address", server.Address, "--namespace", prefix+"gru-1", "run", "-d", ref, prefix+"machine", "/bin/sleep", "1000")
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("run a container: %v: %s", err, out)
		}
	}
	server.Kill(t)
	if err := os.Rename(filepath.Join(server.Dir, "state", "io.containerd.runtime.v2.task"), filepath.Join(server.Dir, "tasks")); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)
	for i, prefix := range prefixes {
		if got := server.Shims(); len(got) != len(prefixes)-i {
			t.Errorf("%d shims are running before the sweep of %s, want %d", len(got), prefix, len(prefixes)-i)
		}
		if err := sweepHost(t.Context(), server.Address, prefix, t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	if got := server.Shims(); len(got) > 0 {
		t.Errorf("shims %v are running after the sweeps, want none", got)
	}
}
