package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
)

// namespaces returns the namespaces that the threads of a process are in, and the number of files
// that the process has open.
func namespaces(t *testing.T, pid int) (seen map[string]bool, files int) {
	t.Helper()
	seen = map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/[mn][ne]t*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if ns, err := os.Readlink(link); err == nil { // fails if the thread has ended
			seen[ns] = true
		}
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return seen, len(entries)
}

// TestApartLeavesNothing concurrently starts tasks with and without their own network and mounts, and executes commands
// in them. Each task must see its own network and mounts. Afterwards, the supervisor's threads must be in the same
// namespaces as before, and the supervisor must not have more files open.
func TestApartLeavesNothing(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	netns := drivertest.Netns(t)
	target := t.TempDir()
	before, files := namespaces(t, d.pid)
	var wg sync.WaitGroup
	for i := range 40 {
		source := t.TempDir()
		if err := os.WriteFile(filepath.Join(source, "who"), fmt.Appendf(nil, "%d", i), 0o600); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			task := program("sleep", "1000")
			task.Limits = driver.Limits{Memory: 64, PIDs: 20}
			want := "0 files"
			if i%2 == 0 {
				task.Network = &driver.Network{Namespace: netns, Resolver: []string{"192.0.2.1"}}
				task.Mounts = []driver.Mount{{Source: source, Target: target}}
				want = fmt.Sprint(i)
			}
			if _, err := d.Start(t.Context(), task); err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			got, err := d.Exec(t.Context(), task.ID, driver.Exec{Command: []string{"sh", "-c", `cat "$0/who" || echo $(ls "$0" | wc -l) files`, target}})
			if err != nil || strings.TrimSpace(string(got.Stdout)) != want {
				t.Errorf("task %d sees %q, %v, want %q", i, got.Stdout, err, want)
			}
			if i%4 == 0 {
				missing := program("no-such-program-anywhere")
				missing.Network = task.Network
				if _, err := d.Start(t.Context(), missing); bourse.CodeOf(err) != bourse.CodeInvalid {
					t.Errorf("a missing program: %v", err)
				}
			}
			if err := d.Destroy(t.Context(), task.ID.Machine); err != nil {
				t.Errorf("destroy %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	eventually(t, "the supervisor's namespaces and files are unchanged", func() bool {
		now, open := namespaces(t, d.pid)
		return len(now) == len(before) && open <= files
	})
	if left, err := filepath.Glob(filepath.Join(d.layout.run(), "resolv*")); len(left) > 0 || err != nil {
		t.Errorf("files were left behind: %v, %v", left, err)
	}
}

// TestHostUnmountsPropagate checks that a mount that the host unmounts is also unmounted in a task with its own mounts.
func TestHostUnmountsPropagate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	shared, target := t.TempDir(), t.TempDir()
	for _, flags := range []uintptr{unix.MS_BIND, unix.MS_SHARED} {
		if err := unix.Mount(shared, shared, "", flags, ""); err != nil {
			t.Skipf("shared mounts cannot be created here: %v", err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(shared, unix.MNT_DETACH) })
	volume := filepath.Join(shared, "volume")
	if err := os.Mkdir(volume, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", volume, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sleep", "1000")
	task.Mounts = []driver.Mount{{Source: t.TempDir(), Target: target}}
	status, err := d.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	mounts := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", status.PID))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if text := mounts(); !strings.Contains(text, volume) || !strings.Contains(text, target) {
		t.Fatalf("the mounts are missing in the task:\n%s", text)
	}
	if err := unix.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(mounts(), volume) {
		t.Error("the task still has a mount that the host has unmounted")
	}
}

// TestOthersMountsAreNotHeld checks that a task does not keep other machines' volumes mounted, even if unmounts on the
// host do not propagate.
func TestOthersMountsAreNotHeld(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	data, err := filepath.EvalSymlinks(filepath.Dir(h.cfg.Dir))
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "data")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"own", "others"} {
		path := filepath.Join(data, name)
		if err := errors.Join(os.Mkdir(path, 0o700), unix.Mount("none", path, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	target := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "own", "file"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := program("sh", "-c", "cat "+target+"/file && exec sleep 1000")
	task.Mounts = []driver.Mount{{Source: filepath.Join(link, "own"), Target: target}}
	status, err := d.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", status.PID))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), data+"/others") || !strings.Contains(string(text), target) {
		t.Errorf("the task has the mounts\n%s", text)
	}
}

// TestReadOnlyKeepsTheRest checks that a read-only mount in a task keeps the original mount's other flags, such as
// nosuid.
func TestReadOnlyKeepsTheRest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	source, target := t.TempDir(), t.TempDir()
	if err := unix.Mount("none", source, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(source, unix.MNT_DETACH) })
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sh", "-c", `grep " $0 " /proc/self/mounts; touch "$0/x"`, target)
	task.Mounts = []driver.Mount{{Source: source, Target: target, ReadOnly: true}}
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	exit, err := d.Wait(t.Context(), task.ID)
	if err != nil || !exit.Failed() {
		t.Errorf("writing: got %+v, %v, want a failure", exit, err)
	}
	var got string
	if err := d.Logs(t.Context(), task.ID.Machine, driver.LogQuery{}, func(l driver.LogLine) error { got += l.Text; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{"ro,", "nosuid", "nodev", "noexec"} {
		if !strings.Contains(got, option) {
			t.Errorf("the mount is %q, want %s", got, option)
		}
	}
}
