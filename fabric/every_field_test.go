package fabric_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
)

// fill sets everything in v, nested in itself twice at most, to what is not zero.
func fill(v reflect.Value, path []reflect.Type) {
	again := 0
	for _, t := range path {
		if t == v.Type() {
			again++
		}
	}
	if again > 1 {
		return
	}
	path = append(path, v.Type())
	switch at := v.Addr().Interface().(type) {
	case *time.Time:
		*at = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		return
	case *netip.Addr:
		*at = netip.MustParseAddr("fd00::1")
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(7.5)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, path)
		fill(value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), path)
			}
		}
	case reflect.Func: // not sent
	default:
		panic("a field of kind " + v.Kind().String() + " cannot be sent")
	}
}

// TestEveryField: what a server sends another arrives with all its fields, also
// with those that are still to come.
func TestEveryField(t *testing.T) {
	local := []cmp.Option{
		byValue,
		cmpopts.IgnoreFields(bourse.Options{}, "First", "Chosen"), // the broker's own
		cmpopts.IgnoreFields(bourse.TaskOrder{}, "Output"),
	}
	for _, v := range []any{
		new(bourse.Order), new(bourse.Claim), new(bourse.Quote), new(bourse.Decision), new(bourse.Cancellation), new(bourse.Machine), new(bourse.Event),
		new(bourse.App), new(bourse.Lease), new(bourse.Hold), new(bourse.Volume), new(bourse.Snapshot), new(bourse.Image), new(bourse.Facts),
		new(fabric.ClaimReply), new(fabric.Act), new(fabric.ActReply), new(fabric.ExecRequest), new(fabric.ExecReply), new(fabric.WaitReply), new(fabric.LeaseRequest),
		new(fabric.MetadataRequest), new(fabric.VolumeChange), new(fabric.ExtendRequest), new(fabric.ExtendHolds), new(fabric.GrantRequest), new(fabric.Grant),
		new(fabric.PullRequest), new(fabric.Usage), new(fabric.Run), new(fabric.Failure),
	} {
		fill(reflect.ValueOf(v).Elem(), nil)
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
			t.Errorf("%T does not arrive as it was sent (-sent +got):\n%s", v, diff)
		}
	}
}
