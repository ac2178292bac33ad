package volume

import (
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

func attach(t *testing.T, s *Store, id bourse.VolumeID) (device string) {
	t.Helper()
	device, err := s.Attach(t.Context(), id)
	must(t, err)
	return device
}

// guest mounts a device as a guest would, calls use to read it, and unmounts it again. use must not start processes.
func guest(t *testing.T, device string, use func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount(device, dir, "ext4", 0, ""))
	func() {
		syscall.ForkLock.RLock() // a process that another test starts would briefly inherit the files that use opens
		defer syscall.ForkLock.RUnlock()
		use(dir)
	}()
	must(t, unix.Unmount(dir, 0))
}

// checkAttached checks the content of a volume with the marks of writeMarks, as its guest reads it.
func checkAttached(t *testing.T, s *Store, id bourse.VolumeID) {
	t.Helper()
	guest(t, attach(t, s, id), func(dir string) {
		for n := range marks {
			if read(t, filepath.Join(dir, name(n))) != string(noise(n, 1<<20)) {
				t.Errorf("%s of %s is not what was written", name(n), id)
			}
		}
	})
}

// wantVM checks that only virtual machines can use a volume.
func wantVM(t *testing.T, s *Store, id bourse.VolumeID) {
	t.Helper()
	_, err := s.Mount(t.Context(), id)
	if bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "virtual machine") {
		t.Errorf("mount %s: got %v, want a refusal, because a virtual machine has used it", id, err)
	}
}

// wantUnbound waits until no loop device is bound, and fails the test if one remains.
func wantUnbound(t *testing.T, s *Store) {
	t.Helper()
	bound := func() (files []string) {
		for _, file := range boundLoops() {
			if strings.HasPrefix(file, s.dir+"/") {
				files = append(files, file)
			}
		}
		return files
	}
	eventually(t, func() bool { return len(bound()) == 0 })
	if left := bound(); len(left) > 0 {
		t.Errorf("after detaching, loop devices are bound to %q", left)
	}
}

// TestAttach gives a volume to virtual machines. The host must never mount it or a copy of it again.
func TestAttach(t *testing.T) {
	fileSystems(t, func(t *testing.T, s *Store) {
		create(t, s, vol1)
		writeMarks(t, mount(t, s, vol1))
		must(t, os.WriteFile(filepath.Join(s.path(string(vol1), stageComplete, mountDir), "unsynced"), noise(9, 1<<20), 0o600))
		device := attach(t, s, vol1)
		if again := attach(t, s, vol1); again != device {
			t.Errorf("attached as %s, then as %s", device, again)
		}
		guest(t, device, func(dir string) {
			if read(t, filepath.Join(dir, "unsynced")) != string(noise(9, 1<<20)) {
				t.Error("the guest does not see what the host has written")
			}
		})
		wantVM(t, s, vol1)
		if u, err := s.Usage(t.Context(), vol1); err != nil || u != (bourse.VolumeUsage{}) {
			t.Errorf("usage of an attached volume: %+v, %v; want none", u, err)
		}

		// The daemon is restarted.
		must(t, s.Recover(t.Context(), func(string) bool { return true }))
		if again := attach(t, s, vol1); again != device {
			t.Errorf("attached as %s, after a restart as %s", device, again)
		}

		// Copies require shared blocks while the guest may write.
		_, err := s.Snapshot(t.Context(), vol1, snap1)
		exported := s.Export(t.Context(), string(vol1), Position{}, io.Discard)
		if s.noClone.Load() {
			wantCode(t, err, bourse.CodeFailedPrecondition)
			wantCode(t, exported, bourse.CodeFailedPrecondition)
		} else {
			must(t, err)
			must(t, exported)
		}

		must(t, s.Extend(t.Context(), vol1, 2))
		if s.ExtendsLive(vol1) {
			t.Error("the volume of a virtual machine grows while it is used")
		}
		must(t, s.Unmount(t.Context(), vol1))
		wantUnbound(t, s)
		if u, err := s.Usage(t.Context(), vol1); err != nil || u.Blocks*u.BlockSize < 900<<20 || u.Blocks == u.BlocksFree {
			t.Errorf("usage of a detached volume: %+v, %v", u, err)
		}
		wantVM(t, s, vol1)

		order := bourse.VolumeOrder{SizeGB: 3}
		_, err = s.Snapshot(t.Context(), vol1, snap1)
		must(t, err)
		for _, fill := range []func() error{
			func() error { return s.Copy(t.Context(), vol2, order, string(vol1)) },
			func() error { return s.Copy(t.Context(), vol2, order, string(snap1)) },
			func() error { return s.Fill(t.Context(), vol2, order, remote(s, string(vol1))) },
			func() error { return s.Fill(t.Context(), vol2, order, remote(s, string(snap1))) },
		} {
			must(t, fill())
			wantVM(t, s, vol2)
			checkAttached(t, s, vol2)
			must(t, s.Destroy(t.Context(), vol2))
		}
		must(t, s.Destroy(t.Context(), vol1))
	})
}

// TestHostileGuest overwrites a volume's device. The host must not look at the bytes.
func TestHostileGuest(t *testing.T) {
	luks := append([]byte(luksMagic), noise(1, 16<<10)...)
	huge := make([]byte, 64<<10)
	super := huge[superblockAt:]
	binary.LittleEndian.PutUint16(super[0x38:], extMagic)
	binary.LittleEndian.PutUint32(super[0x4:], 1<<31)
	binary.LittleEndian.PutUint32(super[0x18:], 6) // blocks of 64 KiB
	for name, bytes := range map[string][]byte{"zeros": make([]byte, 64<<10), "noise": noise(1, 1<<20), "an encrypted image": luks, "a huge file system": huge} {
		s := open(t, t.TempDir())
		create(t, s, vol1)
		create(t, s, vol2)
		writeMarks(t, mount(t, s, vol2))
		device := attach(t, s, vol1)
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		must(t, err)
		if _, err := f.WriteAt(bytes, 0); err != nil {
			t.Fatal(err)
		}
		must(t, f.Close())
		must(t, s.Unmount(t.Context(), vol1))
		if u, err := s.Usage(t.Context(), vol1); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("usage of a volume with %s: %+v, %v", name, u, err)
		}
		_, err = s.Snapshot(t.Context(), vol1, snap1)
		must(t, err)
		if c, err := s.readContent(string(snap1)); err != nil || c.Encrypted || !c.VM {
			t.Errorf("snapshot of a volume with %s: %+v, %v", name, c, err)
		}
		must(t, s.Copy(t.Context(), vol3, bourse.VolumeOrder{SizeGB: 1}, string(snap1)))
		for _, id := range []bourse.VolumeID{vol1, vol3} {
			wantVM(t, s, id)
			if device := attach(t, s, id); !strings.HasPrefix(device, "/dev/loop") {
				t.Errorf("a volume with %s is attached as %s", name, device)
			}
			must(t, s.Extend(t.Context(), id, 2))
		}
		checkMarks(t, s, vol2, 1)
	}
}

// TestAttachBusy attaches a volume whose mount the host still uses: the device must not be shared.
func TestAttachBusy(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	f, err := os.Create(filepath.Join(mount(t, s, vol1), "a"))
	must(t, err)
	_, err = s.Attach(t.Context(), vol1)
	wantCode(t, err, bourse.CodeUnavailable)
	must(t, f.Close())
	attach(t, s, vol1)

	// A guest that has not ended yet keeps the device.
	user, err := os.Open(attach(t, s, vol1))
	must(t, err)
	must(t, s.Unmount(t.Context(), vol1))
	_, err = s.Attach(t.Context(), vol1)
	wantCode(t, err, bourse.CodeUnavailable)
	must(t, user.Close())
	device := attach(t, s, vol1)
	if out, err := exec.Command("e2fsck", "-fn", device).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v: %s", err, out)
	}
}
