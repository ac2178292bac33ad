package volume

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

const someDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func someManifest() Manifest {
	m := Manifest{ID: "vs_0000000000000001", Bytes: gib, Chunks: []Chunk{{0, someDigest}, {7, someDigest}}}
	m.Digest = m.sum()
	return m
}

func FuzzManifest(f *testing.F) {
	b, err := json.Marshal(someManifest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"bytes":-1}`))
	f.Add([]byte(`{"bytes":4096,"chunks":[{"n":-1,"digest":"sha256:"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeManifest(b)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("error %v has code %q", err, bourse.CodeOf(err))
			}
			return
		}
		if m.Data() > m.Bytes || m.Data() < 0 || len(m.Chunks) > chunks(m.Bytes) {
			t.Errorf("%d bytes of data in %d", m.Data(), m.Bytes)
		}
		if missing, stale := m.compare(nil); len(missing) != len(m.Chunks) || len(stale) != 0 {
			t.Errorf("%d of %d chunks missing, %d stale", len(missing), len(m.Chunks), len(stale))
		}
	})
}

func TestManifestContradictions(t *testing.T) {
	for name, spoil := range map[string]func(*Manifest){
		"digest":       func(m *Manifest) { m.Digest = someDigest },
		"no bytes":     func(m *Manifest) { m.Bytes = 0; m.Digest = m.sum() },
		"odd bytes":    func(m *Manifest) { m.Bytes++; m.Digest = m.sum() },
		"huge":         func(m *Manifest) { m.Bytes = 1 << 62; m.Digest = m.sum() },
		"behind end":   func(m *Manifest) { m.Chunks[1].N = 256; m.Digest = m.sum() },
		"negative":     func(m *Manifest) { m.Chunks[0].N = -1; m.Digest = m.sum() },
		"twice":        func(m *Manifest) { m.Chunks[1].N = 0; m.Digest = m.sum() },
		"short digest": func(m *Manifest) { m.Chunks[1].Digest = "sha256:00"; m.Digest = m.sum() },
		"not hex":      func(m *Manifest) { m.Chunks[1].Digest = strings.ToUpper(someDigest); m.Digest = m.sum() },
		"encrypted":    func(m *Manifest) { m.Encrypted = true },
	} {
		t.Run(name, func(t *testing.T) {
			m := someManifest()
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			spoil(&m)
			if err := m.Validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("error %v has code %q", err, bourse.CodeOf(err))
			}
		})
	}
}

func FuzzJournal(f *testing.F) {
	var whole []byte
	for n := range 3 {
		var err error
		if whole, err = appendRecord(whole, Chunk{N: n, Digest: someDigest}); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		done, n := parseJournal(b)
		if n > len(b) || n%journalRecord != 0 || len(done) > n/journalRecord {
			t.Fatalf("%d records in %d of %d bytes", len(done), n, len(b))
		}
		// What is read can be written, and reads the same.
		var again []byte
		for _, k := range slices.Sorted(maps.Keys(done)) {
			var err error
			if again, err = appendRecord(again, Chunk{N: k, Digest: done[k]}); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := parseJournal(again); !maps.Equal(got, done) {
			t.Errorf("journal %v reads %v", done, got)
		}
	})
}

func TestJournalForgets(t *testing.T) {
	var b []byte
	for _, c := range []Chunk{{1, someDigest}, {2, someDigest}, {1, noDigest}} {
		var err error
		if b, err = appendRecord(b, c); err != nil {
			t.Fatal(err)
		}
	}
	if done, _ := parseJournal(b); !maps.Equal(done, map[int]string{2: someDigest}) {
		t.Errorf("durable: %v", done)
	}
	if done, whole := parseJournal(append(b[:len(b)-1], 'x')); len(done) != 2 || whole != 2*journalRecord {
		t.Errorf("durable before a torn record: %v, %d bytes", done, whole)
	}
}

func FuzzSuperblock(f *testing.F) {
	f.Add(make([]byte, superblockBytes))
	b := make([]byte, superblockBytes)
	b[0x38], b[0x39], b[0x4], b[0x18] = 0x53, 0xef, 200, 2
	f.Add(b)
	f.Add(b[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		sb, err := parseSuperblock(b)
		if err != nil {
			return
		}
		u := sb.usage()
		if u.BlockSize < 1024 || u.BlockSize > 64<<10 || u.Blocks < 0 || u.BlocksFree < 0 || u.BlocksAvail < 0 || u.BlocksAvail > u.BlocksFree {
			t.Errorf("usage %+v of %+v", u, sb)
		}
	})
}

func FuzzEntry(f *testing.F) {
	for _, name := range []string{"vol_0000000000000001", "vs_0000000000000001.new", "00000000000001.gone", "vol_0000000000000001.fork12", "..", "vol_0000000000000001.fork"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, at, ok := entry(name)
		if !ok {
			return
		}
		if !strings.HasPrefix(name, id+string(at)) || strings.ContainsAny(name, "/\x00\n") {
			t.Errorf("%q is %q at %q", name, id, at)
		}
		if bourse.VolumeID(id).Validate() != nil && bourse.SnapshotID(id).Validate() != nil && bourse.MachineID(id).Validate() != nil {
			t.Errorf("%q has id %q", name, id)
		}
	})
}

func FuzzForkID(f *testing.F) {
	f.Add("fork of vol_0000000000000001 3")
	f.Add("fork of vol_0000000000000001 ../x")
	f.Add("fork of ")
	f.Fuzz(func(t *testing.T, s string) {
		id, at, ok := parseForkID(s)
		if !ok {
			return
		}
		if got, kind, ok := entry(id + string(at)); !ok || got != id || kind != forked {
			t.Errorf("%q is %q at %q, which is no entry", s, id, at)
		}
	})
}
