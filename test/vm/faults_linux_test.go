package vm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/vmtest"
)

// TestFaults checks what is reported if a virtual machine terminates in an unusual way, and that a guest that uses up
// its disk does not harm others.
func TestFaults(t *testing.T) {
	vmtest.Cached(t, "modules", "scripts/need-kernel")
	machines := vm.Config{Kernel: vmtest.Find(t).Kernel(), Agent: agent(t)}
	server := containerdtest.Start(t)
	image := server.Import(t, container.DefaultNamespace, "test.local/image", containerdtest.MustBuild(t, containerdtest.Busybox(t), ocispec.ImageConfig{}))
	h := newHost(t, server.Address, machines)
	d := h.Open(t)
	if _, err := d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	if err := syscall.Mount("tmpfs", scratch, "tmpfs", 0, "size=64m,mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(scratch, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run := func(machine, scratch string) driver.TaskID {
		t.Helper()
		id := driver.TaskID{Machine: bourse.MachineID(machine), Boot: 1}
		task := driver.Task{ID: id, Image: image, Command: []string{"sleep", "10000"}, Limits: driver.Limits{Memory: 256}, Root: driver.Root{Scratch: scratch}}
		if _, err := d.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		return id
	}
	full := run("00000000000001", scratch)

	panics := run("00000000000002", "")
	r, err := d.Exec(t.Context(), panics, driver.Exec{Command: []string{"sh", "-c", "mkdir /p && mount -t proc proc /p && echo c > /p/sysrq-trigger"}})
	if err == nil && r.Exit.Code == 0 {
		t.Fatalf("an exec that makes the kernel panic: %+v, want an error or another exit code", r)
	}
	fails := func(what string, id driver.TaskID, reason string) {
		t.Helper()
		exit, err := d.Wait(t.Context(), id)
		if err != nil || exit.Code == 0 {
			t.Errorf("%s: exit %+v, %v, want a failure", what, exit, err)
		}
		var lines strings.Builder
		err = d.Logs(t.Context(), id.Machine, driver.LogQuery{}, func(line driver.LogLine) error {
			lines.WriteString(line.Text + "\n")
			return nil
		})
		if err != nil || !strings.Contains(lines.String(), reason) {
			t.Errorf("%s: the log is %q, %v, want %q in it", what, lines.String(), err, reason)
		}
	}
	fails("a kernel panic", panics, "sysrq triggered crash")

	killed := run("00000000000003", "")
	killVMM(t, h.cfg.Dir, killed.Machine)
	fails("a killed qemu", killed, "ended unexpectedly (signal: killed)")

	fill := driver.Exec{Command: []string{"sh", "-c", "dd if=/dev/zero of=/fill bs=1M; sync; rm /fill && echo again > /again && cat /again"}}
	r, err = d.Exec(t.Context(), full, fill)
	if err != nil || string(r.Stdout) != "again\n" || !strings.Contains(string(r.Stderr), "No space left on device") {
		t.Errorf("a guest that fills its disk: %s%s, %v, want a full disk that can be used again", r.Stdout, r.Stderr, err)
	}
}

// killVMM kills a machine's qemu process. dir is the data directory of the machine's driver.
func killVMM(t *testing.T, dir string, machine bourse.MachineID) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range all {
		program, err := os.Readlink(filepath.Join(process, "exe"))
		if err != nil || !strings.HasPrefix(filepath.Base(program), "qemu-system") {
			continue // the process may have ended
		}
		mounts, err := os.ReadFile(filepath.Join(process, "mountinfo"))
		if err != nil || !strings.Contains(string(mounts), dir) || !strings.Contains(string(mounts), string(machine)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(process))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no qemu runs for machine %s", machine)
}
