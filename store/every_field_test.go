package store

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse/internal/codec/codectest"
)

// TestEveryField checks that every field of every kind of record can be read back, including
// fields that are added later.
func TestEveryField(t *testing.T) {
	for _, v := range everyRecord() {
		codectest.Fill(v)
		b, err := encode(v)
		if err != nil {
			t.Errorf("%T: %v", v, err)
			continue
		}
		got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := decode(b, got); err != nil {
			t.Errorf("%T: %v", v, err)
		}
		if diff := cmp.Diff(v, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%T changed when it was written and read (-written +read):\n%s", v, diff)
		}
	}
}
