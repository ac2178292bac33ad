package view

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

func snapshot(t testing.TB, from *member, s wire.Stream) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := from.Snapshot(t.Context(), s, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func restore(t testing.TB, from, to *member, s wire.Stream) {
	t.Helper()
	if err := to.Restore(t.Context(), s, bytes.NewReader(snapshot(t, from, s))); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotReplacesRows(t *testing.T) {
	for _, path := range []string{"", tempFile(t)} {
		a, b := startMember(t, Config{Path: path}), startMember(t, Config{Site: "w3"})
		b.take(encoded(t, "w2", 5, 1, volume("old", "x"), secret("shop/a", "older", 1)))
		a.take(someStory(t)...)
		for _, h := range a.Digest().Heads {
			restore(t, a, b, h.Stream)
		}
		if d := cmp.Diff(a.dump(), b.dump()); d != "" {
			t.Errorf("after all snapshots (-from +to):\n%s", d)
		}
		if d := cmp.Diff(a.Digest(), b.Digest()); d != "" {
			t.Errorf("digests:\n%s", d)
		}
		b.sound()
		// An older snapshot must change nothing, and a snapshot of this server's own stream must
		// be rejected.
		older := startMember(t, Config{Site: "w4"})
		older.take(encoded(t, "w2", 5, 1, volume("old", "x")))
		restore(t, older, b, wire.Stream{Site: "w2", Epoch: 5})
		if d := cmp.Diff(a.Digest(), b.Digest()); d != "" {
			t.Errorf("after an older snapshot:\n%s", d)
		}
		a.publish(volume("mine", "x"))
		if err := a.Restore(t.Context(), a.Self().Stream, bytes.NewReader(snapshot(t, a, a.Self().Stream))); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("a snapshot of the server's own stream: got %v, want invalid", err)
		}
	}
}

// TestSnapshotOfASupersededStream restores a snapshot of an earlier epoch, which any member may provide. Its owned rows
// must not change anything.
func TestSnapshotOfASupersededStream(t *testing.T) {
	liar, m := startMember(t, Config{}), startMember(t, Config{Site: "w3"})
	first, second := wire.Stream{Site: "w2", Epoch: 1}, wire.Stream{Site: "w2", Epoch: 2}
	liar.take(encoded(t, "w2", 1, 1, volume("v", "x")), encoded(t, "w2", 1, 2, volume("v", "forged"), volume("other", "forged")))
	m.take(encoded(t, "w2", 1, 1, volume("v", "x")))
	if m.Superseded(first) {
		t.Error("the only epoch is superseded")
	}
	m.take(encoded(t, "w2", 2, 1, volume("v", "y")))
	for s, want := range map[wire.Stream]bool{first: true, second: false, {Site: "w2", Epoch: 3}: false, {Site: "w4", Epoch: 1}: false} {
		if got := m.Superseded(s); got != want {
			t.Errorf("superseded %v: %v", s, got)
		}
	}
	before := m.dump()
	restore(t, liar, m, first)
	if d := cmp.Diff(before, m.dump()); d != "" {
		t.Errorf("the snapshot has changed rows (-before +after):\n%s", d)
	}
	if got := m.Head(first); got != 2 {
		t.Errorf("the head is %d, want 2", got)
	}
	var future bytes.Buffer
	f, err := wire.NewFrameWriter(&future, wire.SnapshotHead{Site: "w2", Epoch: 1, Seq: 3, Birth: testKey.Birth, At: time.Now().Add(2 * wire.MaxEpochSkew).UnixNano()})
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(t.Context(), first, &future); err != nil {
		t.Fatal(err)
	}
	for _, h := range m.Digest().Heads {
		if ahead := time.Until(time.Unix(0, h.At)); h.Seq == 3 && ahead > wire.MaxEpochSkew {
			t.Errorf("the stream's time is %s ahead, so it would expire too late", ahead)
		}
	}
}

func TestSnapshotOfUnknownStream(t *testing.T) {
	m := startMember(t, Config{})
	if err := m.Snapshot(t.Context(), wire.Stream{Site: "w2", Epoch: 1}, io.Discard); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("an unknown stream: %v, want %s", err, bourse.CodeNotFound)
	}
}

// TestDamagedSnapshotsChangeNothing truncates a snapshot at each byte, and inverts each byte.
func TestDamagedSnapshotsChangeNothing(t *testing.T) {
	a, b := startMember(t, Config{}), startMember(t, Config{Site: "w3"})
	a.take(someStory(t)...)
	whole := snapshot(t, a, wire.Stream{Site: "w2", Epoch: 6})
	for n := range whole {
		turned := slices.Clone(whole)
		turned[n] ^= 0x55
		for what, bad := range map[string][]byte{"cut": whole[:n], "turned": turned} {
			if err := b.Restore(t.Context(), wire.Stream{Site: "w2", Epoch: 6}, bytes.NewReader(bad)); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Fatalf("%s at byte %d of %d: %v, want %s", what, n, len(whole), err, bourse.CodeInvalid)
			}
		}
	}
	if err := b.Restore(t.Context(), wire.Stream{Site: "w2", Epoch: 5}, bytes.NewReader(whole)); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a snapshot of another stream: got %v, want invalid", err)
	}
	if err := b.RestoreShared(t.Context(), bytes.NewReader(whole)); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("a stream's snapshot for one of shared rows: got %v, want invalid", err)
	}
	broken := io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), errReader{})
	if err := b.Restore(t.Context(), wire.Stream{Site: "w2", Epoch: 6}, broken); !errors.Is(err, errBroken) {
		t.Errorf("a connection that broke: %v", err)
	}
	if len(b.dump()) != 0 || len(b.Digest().Heads) != 0 {
		t.Errorf("damaged snapshots left %v", b.dump())
	}
}

var errBroken = errors.New("connection reset")

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

// TestSharedSnapshotRepairs checks that two members have the same shared rows after they have
// exchanged them, whatever their heads are.
func TestSharedSnapshotRepairs(t *testing.T) {
	now := wire.ClockAt(storyTime)
	a, b := startMember(t, Config{}), startMember(t, Config{Site: "w3"})
	a.take(encoded(t, "w2", 1, 1, secret("k1", "old", now), secret("k2", "new", now+9), secret("k3", "x", now)))
	b.take(encoded(t, "w4", 1, 1, secret("k1", "new", now+1), secret("k2", "old", now), wire.Row{Table: wire.TableSecrets, Key: "k3", Deleted: true, Clock: now + 1}))
	for _, pair := range [][2]*member{{a, b}, {b, a}} {
		var buf bytes.Buffer
		if err := pair[0].SharedSnapshot(t.Context(), &buf); err != nil {
			t.Fatal(err)
		}
		if err := pair[1].RestoreShared(t.Context(), &buf); err != nil {
			t.Fatal(err)
		}
	}
	if a.Digest().Shared != b.Digest().Shared || a.Digest().Shared == 0 {
		t.Errorf("shared rows differ: %x and %x", a.Digest().Shared, b.Digest().Shared)
	}
	if d := cmp.Diff(a.dump(), b.dump()); d != "" {
		t.Errorf("rows:\n%s", d)
	}
	a.sound()
	b.sound()
}

func TestSnapshotOverQueuedTransactions(t *testing.T) {
	a, b := startMember(t, Config{}), startMember(t, Config{Site: "w3"})
	var log [][]byte
	for seq := range uint64(20) {
		log = append(log, encoded(t, "w2", 1, seq+1, volume(fmt.Sprint("v", seq), "x")))
	}
	a.take(log[:10]...)
	if _, err := b.Apply(log[10]); err != nil { // this transaction waits for the first ten
		t.Fatal(err)
	}
	b.take(log[:3]...)
	restore(t, a, b, wire.Stream{Site: "w2", Epoch: 1})
	b.flush()
	if got := b.Head(wire.Stream{Site: "w2", Epoch: 1}); got != 11 {
		t.Errorf("head %d, want 11: the snapshot's 10 transactions and the waiting one", got)
	}
	if frames, ok := b.Since(wire.Position{Stream: wire.Stream{Site: "w2", Epoch: 1}, Seq: 2}, 1<<20); ok {
		t.Errorf("%d transactions from before the snapshot", len(frames))
	}
	if frames, ok := b.Since(wire.Position{Stream: wire.Stream{Site: "w2", Epoch: 1}, Seq: 10}, 1<<20); !ok || len(frames) != 1 {
		t.Errorf("after the snapshot: %d transactions, %v", len(frames), ok)
	}
	b.take(log...)
	a.take(log...)
	if d := cmp.Diff(a.Digest(), b.Digest()); d != "" {
		t.Error(d)
	}
}
