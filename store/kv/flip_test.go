package kv

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestEveryFlippedBitOfTheSnapshot flips every seventh bit of a snapshot, one at a time. Each time the damage must be
// detected, and all intact records must have their original values. The store must not open, and the error must name
// the file.
func TestEveryFlippedBitOfTheSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		update(t, s, putMachine(n))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func() (map[string]string, contents) {
		got := map[string]string{}
		c := readSnapshot(b, schema())
		c.state.Scan(func(c change) bool { got[c.bucket+"/"+string(c.key)] = string(c.value); return true })
		return got, c
	}
	want, whole := read()
	if len(whole.damage) > 0 || len(want) < 60 {
		t.Fatalf("%d keys, damage %v", len(want), whole.damage)
	}
	for n, bit := 0, 0; bit < len(b)*8; n, bit = n+1, bit+7 {
		b[bit/8] ^= 1 << (bit % 8)
		got, c := read()
		if len(c.damage) == 0 {
			t.Errorf("bit %d: no damage was reported", bit)
		}
		maps.DeleteFunc(got, func(k, v string) bool { return want[k] == v })
		if len(got) > 0 || c.keys < int64(len(want)-1) {
			t.Errorf("bit %d: %d of %d keys, other values %v", bit, c.keys, len(want), got)
		}
		if n%500 == 0 {
			overwrite(t, path, b)
			if _, err := openConfig(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), FileName) {
				t.Errorf("bit %d: open: %v, want an error that reports the damaged file", bit, err)
			}
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzReadSnapshot reads arbitrary bytes as a snapshot, with and without an intact head before
// them.
func FuzzReadSnapshot(f *testing.F) {
	dir := f.TempDir()
	s := newState()
	for _, c := range []change{{bucketApps, []byte("a"), []byte("1")}, {bucketMachines, []byte("b"), []byte{}}} {
		s.Set(c)
	}
	if _, err := writeSnapshot(dir, head{version: 1, seq: 7}, s, func() error { return nil }); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, FileName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, false)
	f.Add(b[headSize:], true)
	f.Add(b[:len(b)-headSize-3], false)
	f.Fuzz(func(t *testing.T, b []byte, behind bool) {
		if behind {
			b = append(head{version: 1}.bytes(), b...)
		}
		c := readSnapshot(b, schema())
		if len(c.damage) == 0 && (c.counts[allBuckets] != uint64(c.keys) || c.state.Len() != int(c.keys)) {
			t.Errorf("%d keys in %d records, counted %v, but no damage was reported", c.state.Len(), c.keys, c.counts)
		}
	})
}
