package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// set stores keys in a bucket. Each key's value is the key itself.
func set(t *testing.T, s *DB, bucket string, keys ...string) {
	t.Helper()
	err := s.Update(t.Context(), func(tx Tx) error {
		for _, k := range keys {
			if err := tx.Put(bucket, []byte(k), []byte(k)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRanges(t *testing.T) {
	s := open(t)
	set(t, s, bucketMachines, "b") // the last key of the previous bucket
	set(t, s, bucketOrderTime, "c", "a", "b", "bb")
	set(t, s, bucketHolds, "c", "a", "b", "bb")
	set(t, s, bucketOrders, "b")
	for _, bucket := range []string{bucketOrderTime, bucketHolds} {
		for at, want := range map[string][2]string{
			"": {"a b bb c", "c bb b a"}, "a": {"a b bb c", ""}, "b": {"b bb c", "a"}, "bb": {"bb c", "b a"}, "bc": {"c", "bb b a"}, "d": {"", "c bb b a"},
		} {
			var up, down []string
			err := s.View(func(tx Tx) error {
				for k, v := range tx.Range(bucket, []byte(at)) {
					if up = append(up, string(k)); !bytes.Equal(k, v) {
						t.Errorf("%s is %s", k, v)
					}
				}
				var end []byte
				if at != "" {
					end = []byte(at)
				}
				for k := range tx.RangeBack(bucket, end) {
					down = append(down, string(k))
				}
				for range tx.Range(bucket, nil) {
					break // stops the iteration early
				}
				return nil
			})
			if got := [2]string{strings.Join(up, " "), strings.Join(down, " ")}; err != nil || got != want {
				t.Errorf("%s at %q: %q (%v), want %q", bucket, at, got, err, want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	s := open(t)
	set(t, s, bucketApps, "a")
	for name, key := range map[string][]byte{"none": nil, "empty": {}, "too long": make([]byte, maxKey+1)} {
		if err := s.Update(t.Context(), func(tx Tx) error { return tx.Put(bucketApps, key, []byte("v")) }); bourse.CodeOf(err) != bourse.CodeInternal {
			t.Errorf("put of key %s: got %v, want internal", name, err)
		}
	}
	if err := s.View(func(tx Tx) error { return tx.Put(bucketApps, []byte("b"), []byte("v")) }); bourse.CodeOf(err) != bourse.CodeInternal {
		t.Errorf("put by a reader: got %v, want internal", err)
	}
	if err := s.View(func(tx Tx) error { return tx.Delete(bucketApps, []byte("a")) }); bourse.CodeOf(err) != bourse.CodeInternal {
		t.Errorf("delete by a reader: got %v, want internal", err)
	}
	if err := s.View(func(Tx) error { return errNoMachine }); !errors.Is(err, errNoMachine) {
		t.Errorf("read transaction with an error: %v", err)
	}
	err := s.View(func(tx Tx) error {
		n := 0
		for range tx.Range(bucketApps, nil) {
			n++
		}
		if n != 1 || tx.Get(bucketApps, []byte("a")) == nil {
			return fmt.Errorf("%d keys, want 1", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// contentsModel models a store's contents as a map. The keys consist of the bucket, a zero byte
// and the key.
type contentsModel map[string]string

// keys returns the keys of a bucket, sorted.
func (m contentsModel) keys(bucket string) (out []string) {
	for k := range m {
		if b, key, _ := strings.Cut(k, "\x00"); b == bucket {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

var modelBuckets = []string{bucketApps, bucketHolds, bucketLog, bucketOrders}

// compare returns an error if a transaction's contents differ from the model. It reads all
// sequences from the key at.
func (m contentsModel) compare(tx Tx, at string) error {
	for _, bucket := range modelBuckets {
		keys := m.keys(bucket)
		from, _ := slices.BinarySearch(keys, at)
		i := from
		for k, v := range tx.Range(bucket, []byte(at)) {
			if i >= len(keys) || keys[i] != string(k) || m[bucket+"\x00"+string(k)] != string(v) {
				return fmt.Errorf("%s from %q: %q = %q at %d of %q", bucket, at, k, v, i, keys)
			}
			i++
		}
		if i != len(keys) {
			return fmt.Errorf("%s from %q ends at %d of %q", bucket, at, i, keys)
		}
		i = from
		for k, v := range tx.RangeBack(bucket, []byte(at+"\x00")) { // at plus a zero byte is the next possible key, so the range includes at
			if i == from && string(k) == at {
				continue
			}
			if i--; i < 0 || keys[i] != string(k) || m[bucket+"\x00"+string(k)] != string(v) {
				return fmt.Errorf("%s back from %q: %q = %q at %d of %q", bucket, at, k, v, i, keys)
			}
		}
		if i != 0 {
			return fmt.Errorf("%s back from %q ends at %d of %q", bucket, at, i, keys)
		}
		for _, k := range keys {
			if v := tx.Get(bucket, []byte(k)); v == nil || string(v) != m[bucket+"\x00"+k] {
				return fmt.Errorf("%s: %q is %q, want %q", bucket, k, v, m[bucket+"\x00"+k])
			}
		}
	}
	return nil
}

// drawChange draws a change to a key that may or may not exist.
func drawChange(t *rapid.T) change {
	c := change{bucket: rapid.SampledFrom(modelBuckets).Draw(t, "bucket"), key: []byte(modelKeys.Draw(t, "key"))}
	if rapid.IntRange(0, 2).Draw(t, "delete") > 0 {
		text := rapid.SampledFrom([]string{"", "v", "w"}).Draw(t, "value")
		c.value = bytes.Repeat([]byte(text), rapid.SampledFrom([]int{1, 3, 500}).Draw(t, "length"))
	}
	return c
}

var modelKeys = rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00")), 1, 3, -1)

func (m contentsModel) change(c change) {
	if k := c.bucket + "\x00" + string(c.key); c.value == nil {
		delete(m, k)
	} else {
		m[k] = string(c.value)
	}
}

// engineModel compares a store with a map, after random transactions, some of which fail, after
// restarts, and after crashes. The log files are so small that a checkpoint is almost always in
// progress.
func engineModel(t *rapid.T) {
	dir, err := os.MkdirTemp("", "kv")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	killed := &atomic.Bool{} // once this is set, the next snapshot makes the store fail
	open := func() (*DB, error) {
		return openConfig(Config{Dir: dir, LogFileSize: 300, Step: func() error {
			if killed.Load() {
				return errKill
			}
			return nil
		}})
	}
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	model := contentsModel{}
	reopen := func(t *rapid.T) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		killed.Store(false)
		if s, err = open(); err != nil {
			t.Fatal(err)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"update": func(t *rapid.T) {
			all := rapid.SliceOfN(rapid.Custom(drawChange), 1, 6).Draw(t, "changes")
			fails, at := rapid.IntRange(0, 3).Draw(t, "fails") == 0, modelKeys.Draw(t, "at")
			next := maps.Clone(model)
			err := s.Update(context.Background(), func(tx Tx) error {
				for _, c := range all {
					if err := perform(tx, c); err != nil {
						return err
					}
					next.change(c)
				}
				if err := next.compare(tx, at); err != nil || !fails { // a transaction reads its own changes
					return err
				}
				return errKill
			})
			switch {
			case err == nil && !fails:
				model = next
			case !fails || !errors.Is(err, errKill):
				t.Fatal(err)
			}
		},
		"reopen": reopen,
		"crash": func(t *rapid.T) {
			killed.Store(true)
			reopen(t)
		},
		"": func(t *rapid.T) {
			at := modelKeys.Draw(t, "at")
			if err := s.View(func(tx Tx) error { return model.compare(tx, at) }); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// perform applies a change in a transaction.
func perform(t Tx, c change) error {
	if c.value == nil {
		return t.Delete(c.bucket, c.key)
	}
	return t.Put(c.bucket, c.key, c.value)
}

func TestEngineModel(t *testing.T) { rapid.Check(t, engineModel) }

func FuzzEngineModel(f *testing.F) {
	for seed := range byte(3) {
		choices := make([]byte, 4<<10)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(choices)
		f.Add(choices)
	}
	f.Fuzz(rapid.MakeFuzz(engineModel))
}
