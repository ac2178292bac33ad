package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// envChild is an environment variable that makes the test binary a child process. It contains the
// name of an operation, the number of the step at which the process kills itself, and the
// directory.
const envChild = "BOURSE_VOLUME_CHILD"

// child executes the operation in envChild. It returns false if envChild is not set.
func child() bool {
	words := strings.SplitN(os.Getenv(envChild), " ", 3)
	if len(words) != 3 {
		return false
	}
	err := runChild(words[0], words[1], words[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func runChild(operation, step, dir string) error {
	last, err := strconv.Atoi(step)
	if err != nil {
		return err
	}
	s, err := Open(Config{Dir: dir})
	if err != nil {
		return err
	}
	n := 0
	s.step = func(string) {
		if n++; n == last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until the signal arrives
		}
	}
	for _, o := range operations() {
		if o.name == operation {
			return o.do(context.Background(), s)
		}
	}
	return errors.New("unknown operation")
}

// operation is an operation that a test kills at each of its steps.
type operation struct {
	name    string
	prepare func(t *testing.T, s *Store)
	do      func(ctx context.Context, s *Store) error
	check   func(t *testing.T, s *Store)
}

func operations() []operation {
	mounted := func(t *testing.T, s *Store) { writeMarks(t, mount(t, s, vol1)) }
	unmounted := func(t *testing.T, s *Store) { mounted(t, s); must(t, s.Unmount(t.Context(), vol1)) }
	gone := func(ids ...bourse.VolumeID) func(t *testing.T, s *Store) {
		return func(t *testing.T, s *Store) {
			for _, id := range ids {
				must(t, s.Destroy(t.Context(), id))
			}
		}
	}
	attached := func(ctx context.Context, s *Store) error { _, err := s.Attach(ctx, vol1); return err }
	filled := func(t *testing.T, s *Store) { checkMarks(t, s, vol2, 2) }
	size3 := func(t *testing.T, s *Store) { checkMarks(t, s, vol1, 3) }
	order := bourse.VolumeOrder{SizeGB: 2}
	snapshot := func(ctx context.Context, s *Store) error { _, err := s.Snapshot(ctx, vol1, snap1); return err }
	return []operation{
		{"create", gone(vol2), func(ctx context.Context, s *Store) error { return s.Create(ctx, vol2, order) }, func(t *testing.T, s *Store) {
			checkImage(t, image(s, string(vol2)))
			mount(t, s, vol2)
		}},
		{"mount", unmounted, func(ctx context.Context, s *Store) error { _, err := s.Mount(ctx, vol1); return err }, func(t *testing.T, s *Store) {
			checkMarks(t, s, vol1, 1)
		}},
		{"unmount", mounted, func(ctx context.Context, s *Store) error { return s.Unmount(ctx, vol1) }, func(t *testing.T, s *Store) {
			checkImage(t, image(s, string(vol1)))
		}},
		{"attach", mounted, attached, func(t *testing.T, s *Store) {
			checkAttached(t, s, vol1)
			wantVM(t, s, vol1)
		}},
		{"detach", func(t *testing.T, s *Store) { unmounted(t, s); attach(t, s, vol1) }, func(ctx context.Context, s *Store) error { return s.Unmount(ctx, vol1) }, func(t *testing.T, s *Store) {
			wantUnbound(t, s)
			checkImage(t, image(s, string(vol1)))
			wantVM(t, s, vol1)
		}},
		{"extend-attached", func(t *testing.T, s *Store) { unmounted(t, s); attach(t, s, vol1) }, func(ctx context.Context, s *Store) error { return s.Extend(ctx, vol1, 3) }, func(t *testing.T, s *Store) {
			must(t, s.Unmount(t.Context(), vol1))
			checkAttached(t, s, vol1)
		}},
		{"copy-detached", func(t *testing.T, s *Store) {
			unmounted(t, s)
			attach(t, s, vol1)
			must(t, s.Unmount(t.Context(), vol1))
		}, func(ctx context.Context, s *Store) error {
			return s.Copy(ctx, vol2, order, string(vol1))
		}, func(t *testing.T, s *Store) { wantVM(t, s, vol2); checkAttached(t, s, vol2) }},
		{"fill-detached", func(t *testing.T, s *Store) {
			unmounted(t, s)
			attach(t, s, vol1)
			must(t, s.Unmount(t.Context(), vol1))
		}, func(ctx context.Context, s *Store) error {
			return s.Fill(ctx, vol2, order, remote(s, string(vol1)))
		}, func(t *testing.T, s *Store) { wantVM(t, s, vol2); checkAttached(t, s, vol2) }},
		{"destroy-attached", func(t *testing.T, s *Store) { create(t, s, vol2); attach(t, s, vol2) }, func(ctx context.Context, s *Store) error { return s.Destroy(ctx, vol2) }, func(t *testing.T, s *Store) {
			wantUnbound(t, s)
		}},
		{"extend", mounted, func(ctx context.Context, s *Store) error { return s.Extend(ctx, vol1, 3) }, size3},
		{"extend-unmounted", unmounted, func(ctx context.Context, s *Store) error { return s.Extend(ctx, vol1, 3) }, size3},
		{"snapshot", mounted, snapshot, func(t *testing.T, s *Store) {
			checkImage(t, image(s, string(snap1)))
			writeMarks(t, mount(t, s, vol1)) // it must not be frozen
		}},
		{"fork", mounted, func(ctx context.Context, s *Store) error { return s.Export(ctx, string(vol1), Position{}, io.Discard) }, func(t *testing.T, s *Store) {
			writeMarks(t, mount(t, s, vol1))
		}},
		{"fill-local", mounted, func(ctx context.Context, s *Store) error { return s.Copy(ctx, vol2, order, string(vol1)) }, filled},
		{"fill", unmounted, func(ctx context.Context, s *Store) error {
			return s.Fill(ctx, vol2, order, remote(s, string(vol1)))
		}, filled},
		{"fill-mounted", mounted, func(ctx context.Context, s *Store) error {
			return s.Fill(ctx, vol2, order, remote(s, string(vol1)))
		}, filled},
		{"destroy", func(t *testing.T, s *Store) { create(t, s, vol2); mount(t, s, vol2) }, func(ctx context.Context, s *Store) error { return s.Destroy(ctx, vol2) }, func(t *testing.T, s *Store) {
			wantCode(t, s.requireComplete(string(vol2)), bourse.CodeNotFound)
		}},
		{"remove-snapshot", func(t *testing.T, s *Store) { mounted(t, s); must(t, snapshot(t.Context(), s)) }, func(ctx context.Context, s *Store) error { return s.RemoveSnapshot(ctx, snap1) }, func(t *testing.T, s *Store) {
			wantCode(t, s.requireComplete(string(snap1)), bourse.CodeNotFound)
		}},
		{"scratch", func(*testing.T, *Store) {}, func(ctx context.Context, s *Store) error { _, err := s.Scratch(ctx, mach1, 64); return err }, func(t *testing.T, s *Store) {
			must(t, os.WriteFile(s.path(string(mach1), stageComplete, mountDir, "a"), noise(1, 1000), 0o600))
		}},
		{"remove-scratch", func(t *testing.T, s *Store) { _, err := s.Scratch(t.Context(), mach1, 64); must(t, err) }, func(ctx context.Context, s *Store) error { return s.RemoveScratch(ctx, mach1) }, func(*testing.T, *Store) {}},
	}
}

// marks is the number of files in a volume whose contents show whether the volume is intact.
const marks = 3

func writeMarks(t *testing.T, dir string) {
	t.Helper()
	for n := range marks {
		write(t, filepath.Join(dir, name(n)), noise(n, 1<<20))
	}
}

func checkMarks(t *testing.T, s *Store, id bourse.VolumeID, gb int64) {
	t.Helper()
	must(t, s.Unmount(t.Context(), id))
	checkImage(t, image(s, string(id)))
	dir := mount(t, s, id)
	for n := range marks {
		if read(t, filepath.Join(dir, name(n))) != string(noise(n, 1<<20)) {
			t.Errorf("%s of %s has the wrong contents", name(n), id)
		}
	}
	if u, err := s.Usage(t.Context(), id); err != nil || u.Blocks*u.BlockSize < gb*900<<20 {
		t.Errorf("usage of %d GiB: %+v, %v", gb, u, err)
	}
}

// TestKill kills a process at every step of every operation. Afterwards the operation must succeed, and after all
// volumes are removed, no files may remain.
func TestKill(t *testing.T) {
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			dir := inMemory(t)
			for step := 1; killed(t, o, dir, step); step++ {
				if step > 60 {
					t.Fatal("the operation did not end after the maximum number of steps")
				}
			}
		})
	}
}

// killed kills an operation at a step. It returns false if the operation ended before that step.
func killed(t *testing.T, o operation, dir string, step int) bool {
	s := open(t, dir)
	create(t, s, vol1)
	o.prepare(t, s)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", envChild, o.name, step, s.dir))
	out, err := cmd.CombinedOutput()
	killed := false
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, _ := exit.Sys().(syscall.WaitStatus)
		killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	if err != nil && !killed {
		t.Fatalf("step %d: %v: %s", step, err, out)
	}
	s = &Store{
		dir: s.dir, log: s.log, growsMounted: s.growsMounted, step: s.step, pause: s.pause, mounts: map[string]int{}, forks: map[string]*time.Timer{},
	}
	must(t, s.Recover(t.Context(), func(string) bool { return true }))
	for range 2 {
		if err := o.do(t.Context(), s); err != nil {
			t.Fatalf("operation after it was killed at step %d: %v", step, err)
		}
	}
	o.check(t, s)
	if t.Failed() {
		t.Fatalf("it was killed at step %d", step)
	}
	must(t, s.Destroy(t.Context(), vol1))
	must(t, s.Destroy(t.Context(), vol2))
	must(t, s.RemoveSnapshot(t.Context(), snap1))
	must(t, s.RemoveScratch(t.Context(), mach1))
	if left := leftovers(t, s.dir); len(left) > 0 {
		t.Fatalf("files left after step %d: %q", step, left)
	}
	return killed
}
