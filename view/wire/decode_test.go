package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// FuzzDecode decodes arbitrary bytes. A transaction that was decoded must stay equal when it is
// encoded and decoded again.
func FuzzDecode(f *testing.F) {
	key, err := NewKey(bourse.RoleBroker)
	if err != nil {
		f.Fatal(err)
	}
	birth, signer := key.Own()
	seal := SigningKey{Cluster: "test", Birth: birth, Key: signer}
	good, err := Encode(&Transaction{
		Position: Position{Stream{"w2", 5}, 1}, At: 7,
		Rows: []Row{
			{Table: TableWorkers, Key: "w2", Columns: map[string]Value{"load": 0.25, "region": "gru", "leaving": nil}},
			{Table: TableVolumes, Key: "gone", Deleted: true},
			{Table: TableSecrets, Key: "shop/key", Clock: 111_411_200_000_000_001, Columns: map[string]Value{"sealed": []byte{0, 1, 255}, "version": int64(-2)}},
		},
	}, seal)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{WireVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		tx, err := Decode(b)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Fatalf("error %v, want code %s", err, bourse.CodeInvalid)
			}
			return
		}
		if p, err := DecodePosition(b); err != nil || p != tx.Position {
			t.Fatalf("DecodePosition returned %v, %v, Decode %v", p, err, tx.Position)
		}
		again, err := Encode(tx, seal)
		if err != nil {
			return // a value of an unsupported type
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tx, back); d != "" {
			t.Fatalf("encoded and decoded again:\n%s", d)
		}
	})
}
