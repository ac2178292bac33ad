package view

import (
	"bytes"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// FuzzApply passes arbitrary bytes to a view, which applies them or rejects them as invalid. The file must stay
// intact.
func FuzzApply(f *testing.F) {
	good, err := wire.Encode(goldenTransaction(), testSeal())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte{wire.WireVersion, 0xa5, 0x01, 0x62, 'w', '2', 0x02, 0x01, 0x03, 0x01, 0x04, 0x00, 0x05, 0x81, 0x40})
	for _, row := range badRows() {
		if b := raw(f, 1, row); len(b) < 1<<16 {
			f.Add(b)
		}
	}
	m := startMember(f, Config{})
	seen := 0
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := m.Apply(b)
		if code := bourse.CodeOf(err); err != nil && code != bourse.CodeInvalid && code != bourse.CodeForbidden {
			t.Fatalf("error %v, want code %s or %s", err, bourse.CodeInvalid, bourse.CodeForbidden)
		}
		if seen++; err != nil && seen%64 != 0 {
			return
		}
		if err := m.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.verify(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRestore passes arbitrary snapshots to a view.
func FuzzRestore(f *testing.F) {
	a := startMember(f, Config{})
	a.take(someStory(f)...)
	for _, h := range a.Digest().Heads {
		b := snapshot(f, a, h.Stream)
		f.Add(b, false)
		f.Add(b[:len(b)-3], false)
	}
	var shared bytes.Buffer
	if err := a.SharedSnapshot(f.Context(), &shared); err != nil {
		f.Fatal(err)
	}
	f.Add(shared.Bytes(), true)
	f.Add([]byte{wire.WireVersion, wire.FrameHead, 0xff, 0xff, 0xff, 0xff}, true)
	m := startMember(f, Config{Site: "w3"})
	f.Fuzz(func(t *testing.T, b []byte, shared bool) {
		var err error
		if shared {
			err = m.RestoreShared(t.Context(), bytes.NewReader(b))
		} else {
			err = m.Restore(t.Context(), wire.Stream{Site: "w2", Epoch: 5}, bytes.NewReader(b))
		}
		if err != nil && bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Fatalf("error %v, want code %s", err, bourse.CodeInvalid)
		}
		if err == nil {
			if err := m.verify(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
