package store

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// everyRecord returns an empty record of each kind.
func everyRecord() []any {
	return []any{
		new(bourse.Machine), new(bourse.Volume), new(bourse.Hold), new(bourse.App), new(OrderRecord), new(Entry), new(fsm.Record), new(Identity), new(bourse.Cordon), new(bourse.Version),
	}
}

// FuzzDecodeRecords decodes arbitrary bytes as each kind of record. A record that was decoded
// must stay equal when it is encoded and decoded again.
func FuzzDecodeRecords(f *testing.F) {
	for _, v := range append(everyRecord(), machine(1, bourse.StateCreated), aVolume(1, bourse.VolumeCreated), aHold(0, 0, 1, 2, 1), taskOrder(1, 2)) {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte{recordVersion})
	f.Add([]byte(`{"id":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		for _, v := range everyRecord() {
			if err := decode(b, v); err != nil {
				if bourse.CodeOf(err) != bourse.CodeInternal {
					t.Errorf("%T: code %s", v, bourse.CodeOf(err))
				}
				continue
			}
			written, err := encode(v)
			if err != nil {
				continue // a number that cannot be encoded, such as NaN
			}
			again := reflect.New(reflect.TypeOf(v).Elem()).Interface()
			if err := decode(written, again); err != nil {
				t.Errorf("%T: cannot be encoded and decoded again: %v", v, err)
			} else if diff := cmp.Diff(v, again, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%T: changed when it was encoded and decoded again (-first +second):\n%s", v, diff)
			}
		}
		if !bytes.Equal(before, b) {
			t.Error("the decoder changed its input")
		}
	})
}

// FuzzTimeKey checks that timeKey is the inverse of splitTimeKey.
func FuzzTimeKey(f *testing.F) {
	f.Add([]byte("\x80\x00\x00\x00\x00\x00\x00\x00\x00id"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		at, id := splitTimeKey(b)
		if len(b) >= 9 && b[8] == 0 && !bytes.Equal(timeKey(at, id), b) {
			t.Errorf("splitTimeKey(%x) = %s, %q, but timeKey returned %x", b, at, id, timeKey(at, id))
		}
	})
}
