package store

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// FuzzDecodeRun feeds arbitrary bytes to the decoder of runs; what it takes
// reads the same after it was written again.
func FuzzDecodeRun(f *testing.F) {
	good, err := encodeRun(fsm.Record{ID: "1", Definition: "d", Resource: "r", Request: json.RawMessage(`{}`), Result: json.RawMessage(`[]`)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte{recordVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{recordVersion, 2, '{', '}', 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := decodeRun(b)
		if err != nil {
			if bourse.CodeOf(err) != bourse.CodeInternal {
				t.Errorf("code %s", bourse.CodeOf(err))
			}
			return
		}
		written, err := encodeRun(rec)
		if err != nil {
			return // a time that JSON cannot write
		}
		again, err := decodeRun(written)
		if diff := cmp.Diff(rec, again); err != nil || diff != "" {
			t.Errorf("read again: %v (-first +second):\n%s", err, diff)
		}
	})
}

// FuzzDecodeRecords feeds arbitrary bytes to every other decoder.
func FuzzDecodeRecords(f *testing.F) {
	for _, v := range []any{machine(1, bourse.StateCreated), aVolume(1, bourse.VolumeCreated), aHold(0, 0, 1, 2, 1), OrderRecord{ID: "o"}, taskOrder(1, 2), Entry{Seq: 1, Kind: "machine"}, bourse.App{Name: "a"}, Identity{Worker: "w"}} {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{recordVersion})
	f.Add([]byte{taskVersion})
	f.Add([]byte{taskVersion, 0x22, 0}) // an amount of nothing
	f.Add([]byte(`{"id":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []any{new(bourse.Machine), new(bourse.Volume), new(bourse.Hold), new(facts), new(OrderRecord), new(Entry), new(bourse.App), new(Identity)} {
			if o, ok := v.(*OrderRecord); ok && bytes.HasPrefix(b, []byte{taskVersion}) {
				readsAgain(t, b, o)
			}
			before := bytes.Clone(b)
			if err := decode(b, v); err != nil && bourse.CodeOf(err) == "" {
				t.Error("an error without a code")
			}
			if !bytes.Equal(before, b) {
				t.Error("the decoder has changed its input")
			}
		}
	})
}

// readsAgain checks that the record of a task, if b is one, reads the same after
// it was written again.
func readsAgain(t *testing.T, b []byte, o *OrderRecord) {
	t.Helper()
	if decode(b, o) != nil {
		return
	}
	written, err := encode(*o)
	var again OrderRecord
	if err == nil {
		err = decode(written, &again)
	}
	if diff := cmp.Diff(*o, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("read again: %v (-first +second):\n%s", err, diff)
	}
}

// FuzzTimeKey checks that keys of times undo and order.
func FuzzTimeKey(f *testing.F) {
	f.Add([]byte("\x80\x00\x00\x00\x00\x00\x00\x00\x00id"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		at, id := splitTimeKey(b)
		if len(b) >= 9 && b[8] == 0 && !bytes.Equal(timeKey(at, id), b) {
			t.Errorf("%x became %s %q and then %x", b, at, id, timeKey(at, id))
		}
	})
}
