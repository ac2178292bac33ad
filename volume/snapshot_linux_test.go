package volume

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bourse-dev/bourse"
)

// fileSystems runs a test on a host that can share blocks between files, and on one that cannot.
func fileSystems(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Run("copy", func(t *testing.T) {
		s := open(t, t.TempDir())
		s.noClone.Store(true)
		test(t, s)
	})
	t.Run("reflink", func(t *testing.T) {
		s := open(t, smallFS(t, 3<<10, "mkfs.xfs", "-q", "-m", "reflink=1"))
		test(t, s)
		if s.noClone.Load() {
			t.Error("xfs does not share blocks")
		}
	})
}

func TestSnapshot(t *testing.T) {
	fileSystems(t, func(t *testing.T, s *Store) {
		create(t, s, vol1)
		dir := mount(t, s, vol1)
		write(t, filepath.Join(dir, "a"), noise(1, 20<<20))
		must(t, os.WriteFile(filepath.Join(dir, "unsynced"), noise(2, 1<<20), 0o600))
		first, err := s.Snapshot(t.Context(), vol1, snap1)
		must(t, err)
		if first.SizeGB != 1 || first.Bytes < 21<<20 || first.Bytes > 200<<20 {
			t.Errorf("snapshot %+v", first)
		}
		write(t, filepath.Join(dir, "a"), noise(3, 20<<20))
		must(t, s.Destroy(t.Context(), vol1))
		again, err := s.Snapshot(t.Context(), vol1, snap1)
		must(t, err)
		if again.Digest != first.Digest {
			t.Errorf("snapshot %+v, then %+v", first, again)
		}
		checkImage(t, image(s, string(snap1)))
		for range 2 {
			must(t, s.Copy(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 2}, string(snap1)))
		}
		checkImage(t, image(s, string(vol2)))
		dir = mount(t, s, vol2)
		if read(t, filepath.Join(dir, "a")) != string(noise(1, 20<<20)) || read(t, filepath.Join(dir, "unsynced")) != string(noise(2, 1<<20)) {
			t.Error("the restored files do not have their original contents")
		}
		if u, err := s.Usage(t.Context(), vol2); err != nil || u.Blocks*u.BlockSize < 1900<<20 {
			t.Errorf("usage of 2 GiB: %+v, %v", u, err)
		}
		wantCode(t, s.Copy(t.Context(), vol3, bourse.VolumeOrder{SizeGB: 2}, string(vol1)), bourse.CodeNotFound)
		must(t, s.RemoveSnapshot(t.Context(), snap1))
		wantCode(t, s.Copy(t.Context(), vol3, bourse.VolumeOrder{SizeGB: 2}, string(snap1)), bourse.CodeNotFound)
		must(t, s.Copy(t.Context(), vol3, bourse.VolumeOrder{SizeGB: 2}, string(vol2)))
		if uuid := superUUID(t, image(s, string(vol3))); bytes.Equal(uuid, superUUID(t, image(s, string(vol2)))) {
			t.Errorf("two volumes have uuid %x", uuid)
		}
	})
}

func superUUID(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	b := make([]byte, 16)
	_, err = f.ReadAt(b, superblockAt+0x68)
	must(t, err)
	return b
}

// TestSnapshotFollowsChanges changes, empties and adds chunks after a mounted volume has been
// copied and before it is frozen. The snapshot must contain these changes.
func TestSnapshotFollowsChanges(t *testing.T) {
	s := open(t, t.TempDir())
	s.noClone.Store(true)
	create(t, s, vol1)
	dir := mount(t, s, vol1)
	for n := range 8 {
		write(t, filepath.Join(dir, name(n)), noise(n, 6<<20))
	}
	s.step = func(at string) {
		if at != "copied" {
			return
		}
		write(t, filepath.Join(dir, name(1)), noise(100, 6<<20))
		must(t, os.Remove(filepath.Join(dir, name(2))))
		write(t, filepath.Join(dir, name(9)), noise(9, 6<<20))
		must(t, s.Extend(t.Context(), vol1, 2))
	}
	info, err := s.Snapshot(t.Context(), vol1, snap1)
	must(t, err)
	if info.SizeGB != 2 {
		t.Errorf("snapshot of %d GB, want the size after the extension", info.SizeGB)
	}
	s.step = func(string) {}
	checkImage(t, image(s, string(snap1)))
	must(t, s.Copy(t.Context(), vol2, bourse.VolumeOrder{SizeGB: 2}, string(snap1)))
	restored := mount(t, s, vol2)
	for n, want := range map[int]int{0: 0, 1: 100, 3: 3, 7: 7, 9: 9} {
		if read(t, filepath.Join(restored, name(n))) != string(noise(want, 6<<20)) {
			t.Errorf("file %d does not have its contents at the time of the snapshot", n)
		}
	}
	if _, err := os.Stat(filepath.Join(restored, name(2))); err == nil {
		t.Error("a removed file exists again")
	}
}

// database is a sqlite3 process that inserts the numbers 1, 2, 3, …, each in a transaction.
type database struct {
	committed atomic.Int64
	in        io.WriteCloser
	done      chan error
}

func startDatabase(t *testing.T, path string) *database {
	t.Helper()
	sqlite, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skipf("sqlite3 is not available: %v", err)
	}
	cmd := exec.Command(sqlite, "-batch", path)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	d := &database{in: in, done: make(chan error, 1)}
	go func() {
		defer func() { d.done <- cmd.Wait() }()
		if _, err := fmt.Fprintln(in, "pragma journal_mode=wal; pragma synchronous=full; create table t(n integer primary key, pad blob);"); err != nil {
			return
		}
		lines := bufio.NewScanner(out)
		lines.Scan() // discards the journal's mode
		for n := int64(1); ; n++ {
			if _, err := fmt.Fprintf(in, "insert into t values(%d, randomblob(3000)); select %d;\n", n, n); err != nil || !lines.Scan() {
				return
			}
			d.committed.Store(n)
		}
	}()
	return d
}

func (d *database) stop(t *testing.T) {
	t.Helper()
	must(t, d.in.Close())
	<-d.done
}

// TestDatabase takes snapshots and forks of a volume while a database commits continuously. Each copy must
// contain everything that was committed before it began, and no incomplete transactions.
func TestDatabase(t *testing.T) {
	fileSystems(t, func(t *testing.T, s *Store) {
		other := open(t, t.TempDir())
		create(t, s, vol1)
		d := startDatabase(t, filepath.Join(mount(t, s, vol1), "db"))
		for round := range 4 {
			reached := d.committed.Load() + 20
			eventually(t, func() bool { return d.committed.Load() >= reached })
			before := d.committed.Load()
			id := bourse.SnapshotID(fmt.Sprintf("vs_%016d", round))
			_, err := s.Snapshot(t.Context(), vol1, id)
			must(t, err)
			checkDatabase(t, s, s, string(id), before, &d.committed)
			before = d.committed.Load()
			checkDatabase(t, other, s, string(vol1), before, &d.committed)
		}
		d.stop(t)
	})
}

// checkDatabase fills a volume of s with a volume of another store, or with a snapshot of its
// own, and checks the database in it.
func checkDatabase(t *testing.T, s, from *Store, id string, before int64, now *atomic.Int64) {
	t.Helper()
	order := bourse.VolumeOrder{SizeGB: 1}
	if s == from {
		must(t, s.Copy(t.Context(), vol2, order, id))
	} else {
		must(t, s.Fill(t.Context(), vol2, order, remote(from, id)))
	}
	after := now.Load()
	path := filepath.Join(mount(t, s, vol2), "db")
	out, err := exec.Command("sqlite3", path, "pragma integrity_check; select count(*) from t; select max(n) from t;").CombinedOutput()
	if err != nil {
		t.Fatalf("sqlite3: %v: %s", err, out)
	}
	answers := strings.Fields(string(out))
	if len(answers) != 3 || answers[0] != "ok" || answers[1] != answers[2] {
		t.Fatalf("the database reports %q", out)
	}
	if n, err := strconv.ParseInt(answers[1], 10, 64); err != nil || n < before || n > after+1 {
		t.Errorf("%d rows (%v), want %d to %d", n, err, before, after+1)
	}
	must(t, s.Destroy(t.Context(), vol2))
}

// TestThaw checks that a volume is thawed if a snapshot fails while the volume is frozen.
func TestThaw(t *testing.T) {
	s := open(t, t.TempDir())
	s.noClone.Store(true)
	create(t, s, vol1)
	dir := mount(t, s, vol1)
	s.step = func(at string) {
		if at == "frozen" {
			must(t, s.clear(string(snap1), stageNew))
			panic(at)
		}
	}
	func() {
		defer func() { _ = recover() }()
		_, err := s.Snapshot(t.Context(), vol1, snap1)
		t.Errorf("snapshot without a directory: %v", err)
	}()
	s.step = func(string) {}
	write(t, filepath.Join(dir, "a"), []byte("not frozen"))
	_, err := s.Snapshot(t.Context(), vol1, snap1)
	must(t, err)
}

// streamOf returns the header and the whole stream of a volume or snapshot.
func streamOf(t *testing.T, s *Store, id string, from Position) (header, []byte) {
	t.Helper()
	var b bytes.Buffer
	must(t, s.Export(t.Context(), id, from, &b))
	h, err := readHeader(bufio.NewReader(bytes.NewReader(b.Bytes())))
	must(t, err)
	return h, b.Bytes()
}

// TestExport exports a snapshot and volumes, mounted or not. A stream that continues an earlier one must have the
// contents of the same point in time, even after a restart.
func TestExport(t *testing.T) {
	s := open(t, t.TempDir())
	create(t, s, vol1)
	dir := mount(t, s, vol1)
	write(t, filepath.Join(dir, "a"), noise(1, 2<<20))
	_, err := s.Snapshot(t.Context(), vol1, snap1)
	must(t, err)
	end := func(b []byte) string { return string(b[len(b)-32:]) }
	for _, id := range []string{string(snap1), string(vol1)} {
		first, whole := streamOf(t, s, id, Position{})
		write(t, filepath.Join(dir, "a"), noise(2, 2<<20))
		must(t, s.Recover(t.Context(), func(string) bool { return true })) // as after a restart
		again, rest := streamOf(t, s, id, Position{first.Moment, first.Bytes / 2})
		if again.Moment != first.Moment || len(rest) >= len(whole) || end(rest) != end(whole) {
			t.Errorf("%s: %d bytes at moment %q, then %d at %q", id, len(whole), first.Moment, len(rest), again.Moment)
		}
	}
	one, _ := streamOf(t, s, string(vol1), Position{})
	two, all := streamOf(t, s, string(vol1), Position{Moment: "fork12345", Offset: 1 << 20})
	if one.Moment == two.Moment || len(all) < 2<<20 {
		t.Errorf("two exports of a mounted volume have the moments %q and %q", one.Moment, two.Moment)
	}
	must(t, s.Unmount(t.Context(), vol1))
	first, whole := streamOf(t, s, string(vol1), Position{})
	if again, rest := streamOf(t, s, string(vol1), Position{first.Moment, first.Bytes}); again.Moment != first.Moment || end(rest) != end(whole) {
		t.Error("the end of the continued stream differs from the whole stream")
	}
	write(t, filepath.Join(mount(t, s, vol1), "a"), noise(3, 2<<20))
	must(t, s.Unmount(t.Context(), vol1))
	if now, _ := streamOf(t, s, string(vol1), Position{first.Moment, first.Bytes}); now.Moment == first.Moment {
		t.Error("a changed volume has the same moment")
	}
	for _, off := range []int64{-1, 1 << 60} {
		now, _ := streamOf(t, s, string(vol1), Position{})
		wantCode(t, s.Export(t.Context(), string(vol1), Position{now.Moment, off}, io.Discard), bourse.CodeInvalid)
	}
}
