package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	os.Exit(m.Run())
}

const (
	vol1  = bourse.VolumeID("vol_0000000000000001")
	vol2  = bourse.VolumeID("vol_0000000000000002")
	vol3  = bourse.VolumeID("vol_0000000000000003")
	snap1 = bourse.SnapshotID("vs_0000000000000001")
	mach1 = bourse.MachineID("00000000000001")
)

// open returns a store in dir. At the end of the test, it checks that the store has left nothing on the host.
func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if bourse.CodeOf(err) == bourse.CodeUnavailable {
		t.Skipf("this host does not support volumes: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.pause = time.Millisecond
	t.Cleanup(func() {
		if err := s.Recover(context.Background(), func(string) bool { return false }); err != nil {
			t.Errorf("remove everything: %v", err)
		}
		if left := leftovers(t, s.dir); len(left) > 0 {
			t.Errorf("files left: %q", left)
		}
	})
	return s
}

// leftovers waits briefly and returns the remaining files, mounts and loop devices of a
// directory.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	eventually(t, func() bool { return len(onHost(t, dir)) == 0 })
	return onHost(t, dir)
}

// eventually waits, for two seconds at most, until is returns true. It waits for asynchronous work of the kernel, which
// for example clears a loop device shortly after its last user has ended. The caller must check the result.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for range 2000 {
		if is() {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func onHost(t *testing.T, dir string) []string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		if f.Name() != "lost+found" {
			all = append(all, f.Name())
		}
	}
	mounts, err := mountsBelow(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		all = append(all, "mount "+m)
	}
	for _, file := range boundLoops() {
		if strings.HasPrefix(file, dir+"/") {
			all = append(all, "loop of "+filepath.Base(filepath.Dir(file)))
		}
	}
	slices.Sort(all)
	return all
}

// smallFS returns a directory that is a separate file system of the given size.
func smallFS(t *testing.T, mib int64, mkfs ...string) string {
	t.Helper()
	base := t.TempDir()
	image, dir := filepath.Join(base, "image"), filepath.Join(base, "fs")
	f, err := makeImage(image, mib<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if len(mkfs) == 0 {
		mkfs = []string{"mke2fs", "-q", "-F", "-t", "ext4", "-m", "0"}
	}
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Skipf("make a small file system: %v: %s", err, out)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("mount a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// inMemory returns a directory in memory, which is faster than a disk.
func inMemory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1g"); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	t.Cleanup(func() {
		err := unix.Unmount(dir, 0)
		for end := time.Now().Add(10 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(end); {
			runtime.Gosched() // a loop device releases its file with a delay
			err = unix.Unmount(dir, 0)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, s *Store, id bourse.VolumeID) {
	t.Helper()
	must(t, s.Create(t.Context(), id, bourse.VolumeOrder{SizeGB: 1}))
}

func mount(t *testing.T, s *Store, id bourse.VolumeID) string {
	t.Helper()
	dir, err := s.Mount(t.Context(), id)
	must(t, err)
	return dir
}

// write writes a file durably.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	must(t, writeFile(path, data))
	must(t, syncDir(filepath.Dir(path)))
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

// noise returns n pseudo-random bytes that depend only on the seed.
func noise(seed, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // cannot fail
	return b
}

// wantCode fails the test unless err has the code and a message.
func wantCode(t *testing.T, err error, code bourse.Code) {
	t.Helper()
	if bourse.CodeOf(err) != code || bourse.MessageOf(err) == "" {
		t.Errorf("error %v has code %q, want %q", err, bourse.CodeOf(err), code)
	}
}

// checkImage runs e2fsck on an image that is not mounted, and reports all problems that it finds.
func checkImage(t *testing.T, image string) {
	t.Helper()
	if out, err := exec.Command("e2fsck", "-fn", image).CombinedOutput(); err != nil {
		t.Errorf("e2fsck of %s: %v: %s", filepath.Base(filepath.Dir(image)), err, out)
	}
}

func image(s *Store, id string) string { return s.path(id, stageComplete, imageFile) }

func name(n int) string { return fmt.Sprintf("file %d", n) }
