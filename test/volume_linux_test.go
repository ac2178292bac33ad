package test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestDatabaseOnAVolume runs a real database on a volume. It is killed while it writes, and a snapshot is taken while
// it writes. The volume is restored from the snapshot, and forked to another worker. Each copy must be consistent and
// contain everything that was committed before.
func TestDatabaseOnAVolume(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	image := y.push("db:1", ocispec.ImageConfig{Cmd: []string{"/bin/sleep", "1000"}}, program(t, "sqlite3"))
	size := int64(1)
	data, err := y.api.Volumes(app).Create(t.Context(), machinesapi.CreateVolume{Name: "data", Region: "gru", SizeGB: &size}, "")
	if err != nil || data.State != bourse.VolumeCreated {
		t.Fatalf("create a volume: %+v, %v; want state created", data, err)
	}
	db := y.mounting(image.Ref(), data.ID)
	if db.Worker != data.Worker {
		t.Errorf("the volume is on %s and its machine on %s, want the same worker", data.Worker, db.Worker)
	}
	if _, err := y.api.Create(t.Context(), app, y.withVolume(image.Ref(), data.ID), ""); bourse.CodeOf(err) != bourse.CodeInsufficient && bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("a second machine on the same volume: %v, want insufficient_capacity or failed_precondition", err)
	}
	y.sql(db.ID, "PRAGMA journal_mode=WAL; CREATE TABLE t (n INTEGER PRIMARY KEY, filler TEXT)") // WAL allows reading during writes
	y.sh(app, db.ID, `(i=0; while true; do i=$((i+1)); echo "INSERT INTO t VALUES ($i, hex(randomblob(500)));"; done | sqlite3 /data/db) >/dev/null 2>&1 &`)
	y.rowsReach(db.ID, 200)
	before := y.rows(db.ID)
	snap, err := y.api.Volumes(app).Snapshot(t.Context(), data.ID)
	if err != nil || snap.Status != bourse.SnapshotCreated {
		t.Fatalf("snapshot: %+v, %v; want status created", snap, err)
	}
	after := y.rows(db.ID)
	y.destroy(db.ID) // the database is writing at this moment

	again := y.mounting(image.Ref(), data.ID)
	y.whole(again.ID, after, -1)
	last := y.rows(again.ID)
	y.destroy(again.ID)

	restored := y.filled(machinesapi.CreateVolume{Name: "restored", Region: "gru", Snapshot: snap.ID})
	m := y.mounting(image.Ref(), restored.ID)
	y.whole(m.ID, before, after)

	fork := y.filled(machinesapi.CreateVolume{Name: "data", Region: "gru", Source: data.ID})
	if fork.Worker == data.Worker {
		t.Errorf("the fork is also on %s, want another worker", fork.Worker)
	}
	far := y.mounting(image.Ref(), fork.ID)
	y.whole(far.ID, last, last)

	grown, err := y.api.Volumes(app).Extend(t.Context(), fork.ID, 2)
	if err != nil || grown.SizeGB != 2 {
		t.Fatalf("extend: %+v, %v; want 2 GB", grown, err)
	}
	eventually(t, waitTimeout, "the volume has grown to 2 GiB", func() error {
		if !grows() { // if it cannot grow while mounted, it grows at the next mount, unless another mount namespace still uses it
			y.restart(far.ID)
		}
		if out, code := y.sh(app, far.ID, "df -m /data | tail -1"); code != 0 || blocks(out) < 1800 {
			return fmt.Errorf("df reports %q, want at least 1800 MiB", out)
		}
		return nil
	})
	if _, err := y.api.Volumes(app).Destroy(t.Context(), fork.ID); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("destroy a volume in use: %v, want failed_precondition", err)
	}
	y.destroy(far.ID)
	if _, err := y.api.Volumes(app).Destroy(t.Context(), fork.ID); err != nil {
		t.Error(err)
	}
}

// grows reports whether this host can grow a file system while it is mounted.
func grows() bool {
	text, err := os.ReadFile("/proc/self/status")
	_, after, ok := strings.Cut(string(text), "CapEff:")
	field, _, _ := strings.Cut(strings.TrimSpace(after), "\n")
	caps, err2 := strconv.ParseUint(field, 16, 64)
	const sysResource = 24
	return ok && err == nil && err2 == nil && caps&(1<<sysResource) != 0
}

func blocks(df string) int {
	fields := strings.Fields(df)
	if len(fields) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(fields[1])
	return n
}

func (y *yard) withVolume(image string, id bourse.VolumeID) machinesapi.CreateMachine {
	order := y.order(image)
	order.Config.Mounts = []bourse.Mount{{Volume: id, Path: "/data"}}
	return order
}

func (y *yard) mounting(image string, id bourse.VolumeID) machinesapi.Machine {
	y.Helper()
	m := y.run(app, y.withVolume(image, id))
	if got := m.Config.Mounts; len(got) != 1 || got[0].Name == "" || got[0].SizeGB == 0 {
		y.Errorf("mounts %+v, want the volume's name and size", got)
	}
	return m
}

// filled creates a volume from another volume or a snapshot, and waits until its data was
// copied.
func (y *yard) filled(in machinesapi.CreateVolume) machinesapi.Volume {
	y.Helper()
	v, err := y.api.Volumes(app).Create(y.Context(), in, "")
	if err != nil {
		y.Fatalf("volume %s: %v", in.Name, err)
	}
	eventually(y.T, waitTimeout, "volume "+in.Name+" is filled", func() error {
		if v, err = y.api.Volumes(app).Get(y.Context(), v.ID); err == nil && v.State != bourse.VolumeCreated {
			err = bourse.Errorf(bourse.CodeUnavailable, "it is %s %s", v.State, v.Error)
		}
		return err
	})
	return v
}

func (y *yard) sql(id bourse.MachineID, statement string) string {
	y.Helper()
	out, code := y.sh(app, id, "sqlite3 -cmd '.timeout 5000' /data/db '"+statement+"' 2>&1")
	if code != 0 {
		y.Fatalf("%s: %q, code %d, want 0", statement, out, code)
	}
	return out
}

func (y *yard) rows(id bourse.MachineID) int {
	y.Helper()
	n, err := strconv.Atoi(y.sql(id, "SELECT count(*) FROM t"))
	if err != nil {
		y.Fatal(err)
	}
	return n
}

func (y *yard) rowsReach(id bourse.MachineID, n int) {
	y.Helper()
	eventually(y.T, waitTimeout, "the database contains enough rows", func() error {
		if have := y.rows(id); have < n {
			return bourse.Errorf(bourse.CodeUnavailable, "%d rows, want at least %d", have, n)
		}
		return nil
	})
}

// whole checks that a copy of the database is consistent, has no gaps, and has between
// least and most rows. If most is -1, there is no upper limit.
func (y *yard) whole(id bourse.MachineID, least, most int) {
	y.Helper()
	if out := y.sql(id, "PRAGMA integrity_check"); out != "ok" {
		y.Errorf("the integrity check of the database of %s: %s, want ok", id, out)
	}
	n := y.rows(id)
	if gaps := y.sql(id, "SELECT coalesce(max(n), 0) - count(*) FROM t"); gaps != "0" {
		y.Errorf("the database of %s lacks %s rows, want none missing", id, gaps)
	}
	if n < least || most >= 0 && n > most {
		y.Errorf("the database of %s has %d rows, want %d to %d", id, n, least, most)
	}
}
