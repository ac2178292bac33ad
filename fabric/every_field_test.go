package fabric_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/codec/codectest"
)

// byValue is a cmp option for types with unexported fields.
var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// TestEveryField checks that all fields of messages between servers are transmitted, including fields added in the
// future.
func TestEveryField(t *testing.T) {
	local := []cmp.Option{
		byValue,
		cmpopts.IgnoreFields(bourse.Options{}, "FirstTry", "ChosenID"), // these are only used within the broker
		cmpopts.IgnoreFields(bourse.TaskOrder{}, "Output"),
		cmpopts.IgnoreFields(bourse.Order{}, "AppKeys"), // these are sent with the claim instead
	}
	types := []any{new(fabric.Failure)}
	for _, v := range fabric.Verbs() {
		types = append(types, v.Request(), v.Reply())
	}
	for _, v := range types {
		codectest.Fill(v)
		b, err := codec.Marshal(v)
		if err != nil {
			t.Errorf("%T: %v", v, err)
			continue
		}
		got := reflect.New(reflect.TypeOf(v).Elem()).Interface()
		if err := codec.Unmarshal(b, got); err != nil {
			t.Errorf("%T: %v", v, err)
		}
		if diff := cmp.Diff(v, got, local...); diff != "" {
			t.Errorf("%T arrives changed (-sent +got):\n%s", v, diff)
		}
	}
}
