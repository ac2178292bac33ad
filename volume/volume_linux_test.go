package volume

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// TestVolumeLifecycle creates, mounts, unmounts and destroys a volume. Repeating each call must have
// no further effect, and the destroyed volume must leave nothing behind.
func TestVolumeLifecycle(t *testing.T) {
	s := open(t, t.TempDir())
	for range 2 {
		create(t, s, vol1)
	}
	unused, err := s.Usage(t.Context(), vol1)
	must(t, err)
	dir := mount(t, s, vol1)
	if again := mount(t, s, vol1); again != dir {
		t.Errorf("mounted at %q, then at %q", dir, again)
	}
	used, err := s.Usage(t.Context(), vol1)
	must(t, err)
	if used.Blocks*used.BlockSize < 900<<20 || used.Blocks*used.BlockSize > gib {
		t.Errorf("%d blocks of %d bytes in a volume of 1 GiB", used.Blocks, used.BlockSize)
	}
	if unused != used {
		t.Errorf("usage %+v before it was mounted, then %+v", unused, used)
	}
	write(t, filepath.Join(dir, "a"), noise(1, 10<<20))
	for range 2 {
		must(t, s.Unmount(t.Context(), vol1))
	}
	after, err := s.Usage(t.Context(), vol1)
	must(t, err)
	if d := used.BlocksFree - after.BlocksFree; d < 2560 || d > 2600 {
		t.Errorf("10 MiB used %d blocks", d)
	}
	dir = mount(t, s, vol1)
	if read(t, filepath.Join(dir, "a")) != string(noise(1, 10<<20)) {
		t.Error("the file has the wrong contents")
	}
	for range 2 {
		must(t, s.Destroy(t.Context(), vol1))
	}
	if left := leftovers(t, s.dir); len(left) > 0 {
		t.Errorf("files left: %q", left)
	}
	for name, call := range map[string]func() error{
		"mount":    func() error { _, err := s.Mount(t.Context(), vol1); return err },
		"extend":   func() error { return s.Extend(t.Context(), vol1, 2) },
		"usage":    func() error { _, err := s.Usage(t.Context(), vol1); return err },
		"snapshot": func() error { _, err := s.Snapshot(t.Context(), vol1, snap1); return err },
		"export":   func() error { return s.Export(t.Context(), string(vol1), Position{}, io.Discard) },
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, call(), bourse.CodeNotFound) })
	}
	must(t, s.Unmount(t.Context(), vol1))
	must(t, s.RemoveSnapshot(t.Context(), snap1))
}

func TestSizeIsLimited(t *testing.T) {
	s := open(t, t.TempDir())
	dir, err := s.Scratch(t.Context(), mach1, 16)
	must(t, err)
	err = os.WriteFile(filepath.Join(dir, "a"), make([]byte, 32<<20), 0o600)
	if code := bourse.CodeOf(failed(err, "write")); code != bourse.CodeInsufficient {
		t.Errorf("write 32 MiB to 16 MiB of scratch space: %v", err)
	}
	if again, err := s.Scratch(t.Context(), mach1, 16); err != nil || again != dir {
		t.Errorf("scratch space again: %q, %v", again, err)
	}
	if _, err := s.Scratch(t.Context(), mach1, 64); err != nil { // as for a new version of the machine
		t.Errorf("scratch space of another size: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 32<<20), 0o600))
	must(t, s.RemoveScratch(t.Context(), mach1))
	if left := leftovers(t, s.dir); len(left) > 0 {
		t.Errorf("files left: %q", left)
	}
}

func TestExtend(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	dir := mount(t, s, vol1)
	f, err := os.Create(filepath.Join(dir, "held open"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() }) // the file may be closed already
	blocks := func() int64 {
		u, err := s.Usage(t.Context(), vol1)
		must(t, err)
		return u.Blocks * u.BlockSize / gib
	}
	for range 2 {
		must(t, s.Extend(t.Context(), vol1, 3))
	}
	want := int64(2)
	if !s.ExtendsLive(vol1) {
		t.Log("no CAP_SYS_RESOURCE: a mounted file system cannot grow here, it does when it is mounted again")
		want = 0
	}
	if got := blocks(); got != want {
		t.Errorf("a mounted volume of 3 GiB has a file system of %d GiB, want %d", got, want)
	}
	if _, err := f.WriteString("still here"); err != nil {
		t.Error(err)
	}
	must(t, f.Close())
	must(t, s.Unmount(t.Context(), vol1))
	mount(t, s, vol1)
	if got := blocks(); got != 2 {
		t.Errorf("a volume of 3 GiB has a file system of %d GiB after it was mounted again, want 2", got)
	}
	must(t, s.Unmount(t.Context(), vol1))
	must(t, s.Extend(t.Context(), vol1, 500))
	if got := blocks(); got < 480 {
		t.Errorf("a volume of 500 GiB has a file system of %d GiB", got)
	}
	wantCode(t, s.Extend(t.Context(), vol1, 2), bourse.CodeInvalid)
	wantCode(t, s.Extend(t.Context(), vol1, bourse.MaxVolumeGB+1), bourse.CodeInvalid)
	wantCode(t, s.Extend(t.Context(), vol1, bourse.MaxVolumeGB), bourse.CodeInsufficient) // exceeds the maximum size of a file on ext4
	checkImage(t, image(s, string(vol1)))
	if got := read(t, filepath.Join(mount(t, s, vol1), "held open")); got != "still here" {
		t.Errorf("file: %q", got)
	}
}

// TestMountGrows mounts a volume whose extension was interrupted after the image had grown. The
// file system must grow, too.
func TestMountGrows(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	must(t, s.growImage(string(vol1), 2*gib))
	mount(t, s, vol1)
	u, err := s.Usage(t.Context(), vol1)
	must(t, err)
	if u.Blocks*u.BlockSize < 1900<<20 {
		t.Errorf("a volume of 2 GiB has %d blocks", u.Blocks)
	}
}

// TestBusy unmounts a volume that is in use. Its users must be able to continue, and mounting it
// again must result in the same file system.
func TestBusy(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	dir := mount(t, s, vol1)
	f, err := os.Create(filepath.Join(dir, "a"))
	must(t, err)
	must(t, s.Unmount(t.Context(), vol1))
	if mounts, err := mountsBelow(s.dir); err != nil || len(mounts) > 0 {
		t.Errorf("mounts %q (%v) after unmounting", mounts, err)
	}
	dir = mount(t, s, vol1)
	if _, err := f.WriteString("by the old mount"); err != nil {
		t.Error(err)
	}
	if got := read(t, filepath.Join(dir, "a")); got != "by the old mount" {
		t.Errorf("the new mount reads %q", got)
	}
	bound := 0
	for _, file := range boundLoops() {
		if file == image(s, string(vol1)) {
			bound++
		}
	}
	if bound != 1 {
		t.Errorf("%d loop devices for one volume", bound)
	}
	must(t, f.Close())
}

func TestHostileIDs(t *testing.T) {
	s := open(t, t.TempDir())
	for _, id := range []string{"", "..", "vol_", "../../etc/passwd", "vol_000000000000/../x", "vol_0000000000000001\x00", "VOL_0000000000000001", "fork of ..", "fork of vol_0000000000000001 ../x"} {
		t.Run(id, func(t *testing.T) {
			order := bourse.VolumeOrder{SizeGB: 1}
			_, mounting := s.Mount(t.Context(), bourse.VolumeID(id))
			_, attaching := s.Attach(t.Context(), bourse.VolumeID(id))
			_, using := s.Usage(t.Context(), bourse.VolumeID(id))
			_, snapping := s.Snapshot(t.Context(), bourse.VolumeID(id), snap1)
			_, snappingTo := s.Snapshot(t.Context(), vol1, bourse.SnapshotID(id))
			_, scratching := s.Scratch(t.Context(), bourse.MachineID(id), 16)
			for _, err := range []error{
				s.Create(t.Context(), bourse.VolumeID(id), order), s.Copy(t.Context(), bourse.VolumeID(id), order, string(snap1)),
				mounting, attaching, using, snapping, snappingTo, scratching,
				s.Unmount(t.Context(), bourse.VolumeID(id)), s.Extend(t.Context(), bourse.VolumeID(id), 1), s.Destroy(t.Context(), bourse.VolumeID(id)),
				s.RemoveSnapshot(t.Context(), bourse.SnapshotID(id)), s.Export(t.Context(), id, Position{}, io.Discard),
				s.RemoveScratch(t.Context(), bourse.MachineID(id)),
			} {
				wantCode(t, err, bourse.CodeInvalid)
			}
		})
	}
	if got := onHost(t, s.dir); len(got) > 0 {
		t.Errorf("on the host: %q", got)
	}
}

func TestOrders(t *testing.T) {
	s := open(t, t.TempDir())
	for _, size := range []int64{-1, 0, bourse.MaxVolumeGB + 1, 1 << 62} {
		wantCode(t, s.Create(t.Context(), vol1, bourse.VolumeOrder{SizeGB: size}), bourse.CodeInvalid)
	}
	wantCode(t, s.Create(t.Context(), vol1, bourse.VolumeOrder{SizeGB: 1, FSType: "raw"}), bourse.CodeInvalid)
	for _, mib := range []int64{-1, 0, 1, 1 << 62} {
		_, err := s.Scratch(t.Context(), mach1, mib)
		wantCode(t, err, bourse.CodeInvalid)
	}
}

// TestDamage checks the errors for images that cannot be used.
func TestDamage(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"missing":  os.Remove,
		"empty":    func(p string) error { return os.Truncate(p, 0) },
		"short":    func(p string) error { return os.Truncate(p, 100<<20) },
		"zeroed":   func(p string) error { return overwrite(p, 0, make([]byte, 1<<20)) },
		"checksum": func(p string) error { return overwrite(p, superblockAt+0x100, []byte{1, 2, 3}) },
		"noise":    func(p string) error { return overwrite(p, superblockAt, noise(1, 1024)) },
		"groups":   func(p string) error { return overwrite(p, 4096, noise(1, 64<<10)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			create(t, s, vol1)
			must(t, harm(image(s, string(vol1))))
			_, err := s.Mount(t.Context(), vol1)
			wantCode(t, err, bourse.CodeFailedPrecondition)
			if mounts, err := mountsBelow(s.dir); err != nil || len(mounts) > 0 {
				t.Errorf("mounts: %q, %v", mounts, err)
			}
			if name != "groups" { // the guest's kernel finds this damage
				_, err = s.Attach(t.Context(), vol1)
				wantCode(t, err, bourse.CodeFailedPrecondition)
			}
			must(t, s.Destroy(t.Context(), vol1))
		})
	}
}

func overwrite(path string, off int64, b []byte) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, off); err != nil {
		return err
	}
	return f.Close()
}

// TestRecover checks which objects Recover keeps, including a copy for a reader, and which unknown or incomplete ones
// it removes. Recover must also thaw a frozen volume.
func TestRecover(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	create(t, s, vol2)
	dir1, dir2 := mount(t, s, vol1), mount(t, s, vol2)
	held, err := os.Create(filepath.Join(dir2, "held open"))
	must(t, err)
	_, err = s.Snapshot(t.Context(), vol1, snap1)
	must(t, err)
	for _, at := range []stage{stageNew, stageFilling, stageReady, stageGone, stageForked + "3"} {
		must(t, s.begin(string(vol3), at))
	}
	must(t, os.Mkdir(filepath.Join(s.dir, "not ours"), 0o700))
	must(t, freeze(dir1))
	s = open(t, s.dir)
	must(t, s.Recover(t.Context(), func(id string) bool { return id == string(vol1) || id == string(vol3) }))
	write(t, filepath.Join(dir1, "a"), []byte("not frozen"))
	if again := mount(t, s, vol1); again != dir1 {
		t.Errorf("mounted at %q, then at %q", dir1, again)
	}
	must(t, held.Close())
	want := []string{
		"loop of vol_0000000000000001", "mount " + dir1, "not ours", string(vol1), string(vol3) + ".fill", string(vol3) + ".fork3", string(vol3) + ".ready",
	}
	eventually(t, func() bool { return len(onHost(t, s.dir)) == len(want) })
	if got := onHost(t, s.dir); !slices.Equal(got, want) {
		t.Errorf("on the host %q, want %q", got, want)
	}
	must(t, os.Remove(filepath.Join(s.dir, "not ours")))
}

// TestDirtyScratch checks that scratch space is created again if a crash of the host has left it
// unclean.
func TestDirtyScratch(t *testing.T) {
	s := open(t, t.TempDir())
	dir, err := s.Scratch(t.Context(), mach1, 64)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600))
	must(t, flush(dir))
	crashed, err := os.ReadFile(image(s, string(mach1)))
	must(t, err)
	must(t, s.unmount(t.Context(), string(mach1)))
	must(t, os.WriteFile(image(s, string(mach1)), crashed, 0o600))
	dir, err = s.Scratch(t.Context(), mach1, 64)
	must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("unclean scratch space was used")
	}
}

// TestMountFlags checks that device nodes in a volume have no effect.
func TestMountFlags(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	node := filepath.Join(mount(t, s, vol1), "null")
	must(t, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	if f, err := os.Open(node); err == nil {
		t.Errorf("a device node of a volume could be opened: %v", f.Close())
	}
}
