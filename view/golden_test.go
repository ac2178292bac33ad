package view

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse/view/wire"
)

var update = flag.Bool("update-golden", false, "rewrite this release's golden file")

// goldenTransaction contains every kind of row and value.
func goldenTransaction() *wire.Transaction {
	return &wire.Transaction{
		Position: wire.Position{Stream: wire.Stream{Site: "w2", Epoch: 1_700_000_000_000}, Seq: 1}, At: 1_700_000_000_123_456_789,
		Rows: []wire.Row{
			{Table: wire.TableMachines, Key: "00000100c0ffee", Columns: map[string]wire.Value{"app": "shop", "config": `{"image":"x","services":[{"internal_port":80}]}`, "cordoned": int64(1)}},
			{Table: wire.TableWorkers, Key: "w2", Columns: map[string]wire.Value{"load": 0.25, "region": "gru", "leaving": nil}},
			{Table: wire.TableVolumes, Key: "gone", Deleted: true},
			{Table: wire.TableSecrets, Key: "shop/key", Clock: 111_411_200_000_000_001, Columns: map[string]wire.Value{"sealed": []byte{0, 1, 255}, "version": int64(-2)}},
			{Table: wire.TableReleases, Key: "shop/1", Clock: 111_411_200_000_000_002, Columns: map[string]wire.Value{"version": int64(1)}},
		},
	}
}

const (
	goldenTx       = "testdata/wire-1-transaction.bin"
	goldenSnapshot = "testdata/wire-1-snapshot.bin"
	goldenShared   = "testdata/wire-1-shared.bin"
)

// TestGoldenFiles decodes stored transactions and snapshots of the current wire version.
func TestGoldenFiles(t *testing.T) {
	want := startMember(t, Config{})
	b, err := wire.Encode(goldenTransaction(), testSeal())
	if err != nil {
		t.Fatal(err)
	}
	want.take(b)
	if *update {
		writeGolden(t, b)
	}
	t.Run("transaction", func(t *testing.T) {
		old := readFile(t, goldenTx)
		tx, err := wire.Decode(old)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(goldenTransaction(), tx); d != "" {
			t.Errorf("decoded (-want +got):\n%s", d)
		}
		if !bytes.Equal(old, b) {
			t.Error("the encoding has changed: members of both versions would still agree, but mention the change in the changelog")
		}
	})
	t.Run("snapshot", func(t *testing.T) {
		m := startMember(t, Config{Site: "w3"})
		if err := m.Restore(t.Context(), goldenTransaction().Stream, bytes.NewReader(readFile(t, goldenSnapshot))); err != nil {
			t.Fatal(err)
		}
		sameRows(t, want, m)
	})
	t.Run("shared", func(t *testing.T) {
		m := startMember(t, Config{Site: "w3"})
		if err := m.RestoreShared(t.Context(), bytes.NewReader(readFile(t, goldenShared))); err != nil {
			t.Fatal(err)
		}
		if want.Digest().Shared != m.Digest().Shared || m.ForgedCount() != 0 {
			t.Errorf("the view contains %v, %d of them forged", m.dump(), m.ForgedCount())
		}
		m.sound()
	})
}

func sameRows(t *testing.T, want, got *member) {
	t.Helper()
	if d := cmp.Diff(want.dump(), got.dump()); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want.Health().Tables, got.Health().Tables); d != "" {
		t.Errorf("checksums (-want +got):\n%s", d)
	}
	got.sound()
}

func writeGolden(t *testing.T, tx []byte) {
	t.Helper()
	path := tempFile(t)
	m := startMember(t, Config{Path: path})
	m.take(tx)
	var shared bytes.Buffer
	if err := m.SharedSnapshot(t.Context(), &shared); err != nil {
		t.Fatal(err)
	}
	write(t, goldenTx, tx)
	write(t, goldenSnapshot, snapshot(t, m, goldenTransaction().Stream))
	write(t, goldenShared, shared.Bytes())
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
