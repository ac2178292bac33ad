package pages

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// sample is a file of bbolt with a bucket of several levels, and two small ones.
func sample(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sample.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"large", "one", "two"} {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(name))
			for n := 0; err == nil && (n < 300 && name == "large" || n < 2); n++ {
				err = b.Put([]byte(fmt.Sprintf("key %04d", n)), bytes.Repeat([]byte{byte(n)}, 1+n*7%900))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b[:Read(bytes.NewReader(b), int64(len(b)), func(Item) {}).Size()]
}

// All that bbolt has written is read, and nothing of it is taken for damage.
func TestReadsWhatBboltWrote(t *testing.T) {
	b := sample(t)
	keys := map[string]int{}
	f := Read(bytes.NewReader(b), int64(len(b)), func(i Item) { keys[i.Bucket]++ })
	if len(f.Damage) > 0 || keys["large"] != 300 || keys["one"] != 2 || keys["two"] != 2 {
		t.Errorf("keys %v, damage %v", keys, f.Damage)
	}
	f.Lost(func(i Item) { t.Errorf("key %q is lost", i.Key) })
}

// A page that is above itself would have bbolt run until its stack is full.
func TestAPageAboveItself(t *testing.T) {
	b := sample(t)
	for at := 2 * 4096; at < len(b); at += 4096 {
		if b[at+8] == kindBranch {
			copy(b[at+pageHeader+8:], b[at:at+8]) // its first child is itself
		}
	}
	if f := Read(bytes.NewReader(b), int64(len(b)), func(Item) {}); len(f.Damage) == 0 {
		t.Error("nothing is damaged")
	}
}

// Whatever a file holds, reading it ends, without a panic.
func FuzzRead(f *testing.F) {
	b := sample(f)
	f.Add(b, uint32(0), byte(0))
	f.Add(b[:3*4096], uint32(5000), byte(1))
	f.Add([]byte("this is no database"), uint32(3), byte(255))
	f.Fuzz(func(t *testing.T, b []byte, at uint32, flip byte) {
		b = bytes.Clone(b)
		if len(b) > 0 {
			b[int(at)%len(b)] ^= flip
		}
		file := Read(bytes.NewReader(b), int64(len(b)), func(i Item) {
			if len(i.Key)+len(i.Value) > len(b) {
				t.Error("more than there is")
			}
		})
		file.Lost(func(Item) {})
	})
}
