package view

import (
	"bytes"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// TestFutureEpochIsRejected checks that a stream is rejected if its epoch is more than an hour
// ahead of the local clock. It must hide neither its site's rows nor, if it claims to be from
// this server's site, this server's own rows.
func TestFutureEpochIsRejected(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	m := startMember(t, Config{Now: func() time.Time { return now }})
	self := m.publish(volume("ours", "x"))
	soon := uint64(now.Add(wire.MaxEpochSkew).UnixMilli())
	m.take(encoded(t, "w2", soon, 1, volume("v", "x")))
	before := m.dump()
	for _, epoch := range []uint64{soon + 1, wire.MaxEpoch - 1} {
		for _, site := range []bourse.WorkerID{"w2", "w3", "w1"} {
			if v, err := m.Apply(encoded(t, site, epoch, 1)); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("epoch %d of %s: %v, error %v, want %s", epoch, site, v, err, bourse.CodeInvalid)
			}
		}
		if err := m.Renew(t.Context(), wire.Stream{Site: "w1", Epoch: epoch}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("renew after epoch %d: %v, want %s", epoch, err, bourse.CodeInvalid)
		}
		var snapshot bytes.Buffer
		f, err := wire.NewFrameWriter(&snapshot, wire.SnapshotHead{Site: "w2", Epoch: epoch, Seq: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := m.Restore(t.Context(), wire.Stream{Site: "w2", Epoch: epoch}, &snapshot); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("restore epoch %d: %v, want %s", epoch, err, bourse.CodeInvalid)
		}
	}
	m.flush()
	if got := m.dump(); len(got) != len(before) || m.Self() != self {
		t.Errorf("rows %v, want %v; own position %v, want %v", got, before, m.Self(), self)
	}
}

// TestOwnFutureEpochIsReplaced checks that a server whose clock was far ahead starts a new epoch
// once its clock is right. Otherwise nobody would accept its transactions until the clock
// reaches the old epoch.
func TestOwnFutureEpochIsReplaced(t *testing.T) {
	path, now := tempFile(t), time.UnixMilli(1_700_000_000_000)
	m := startMember(t, Config{Path: path, Now: func() time.Time { return now.AddDate(1, 0, 0) }})
	m.publish(volume("ours", "x"))
	if err := m.stop(); err != nil {
		t.Fatal(err)
	}
	m = startMember(t, Config{Path: path, Now: func() time.Time { return now }})
	if got := m.Self().Epoch; got != uint64(now.UnixMilli()) {
		t.Errorf("epoch %d, want %d", got, now.UnixMilli())
	}
}
