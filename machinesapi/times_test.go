package machinesapi_test

import (
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

// alwaysSet contains the time fields that are always set.
var alwaysSet = []string{
	"CheckStatus.UpdatedAt", "Cordon.At", "Decision.At", "Hold.ExpiresAt", "JoinToken.CreatedAt", "JoinToken.ExpiresAt", "JoinedHost.At", "LogLine.At",
	"Release.CreatedAt", "Release.UpdatedAt", "Reservation.ExpiresAt",
	"Run.CreatedAt", "Run.UpdatedAt", "Secret.CreatedAt", "Secret.UpdatedAt", "Snapshot.CreatedAt", "TaskReply.StartedAt", "Token.CreatedAt", "Usage.At", "VolumeHost.UpdatedAt", "VolumeSummary.CreatedAt",
	"WireGuardPeer.CreatedAt", "WireGuardPeer.ExpiresAt",
}

// TestTimesAreNeverZero checks that a reply omits an unknown time instead of showing it as the year 1.
func TestTimesAreNeverZero(t *testing.T) {
	client := reflect.TypeFor[*machinesapi.Client]()
	seen := map[reflect.Type]bool{}
	var found []string
	var walk func(reflect.Type)
	walk = func(in reflect.Type) {
		switch in.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			walk(in.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[in] || in == reflect.TypeFor[time.Time]() {
			return
		}
		seen[in] = true
		for _, f := range reflect.VisibleFields(in) {
			tag := f.Tag.Get("json")
			if tag == "-" || !f.IsExported() {
				continue
			}
			if f.Type == reflect.TypeFor[time.Time]() && !strings.Contains(tag, "omitzero") && len(f.Index) == 1 {
				found = append(found, in.Name()+"."+f.Name)
			}
			walk(f.Type)
		}
	}
	for m := range calls(client) {
		for out := range m.Type.Outs() {
			walk(out)
		}
		for in := range m.Type.Ins() {
			if in.Kind() != reflect.Func {
				continue
			}
			for line := range in.Ins() { // the function is called with lines of a reply
				walk(line)
			}
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	if !slices.Equal(found, alwaysSet) {
		t.Errorf("times without omitzero are %q, want %q: add omitzero to a new one, or make sure that it is always set", found, alwaysSet)
	}
}

// calls yields the methods of the client, and those of the clients that its methods return.
func calls(client reflect.Type) iter.Seq[reflect.Method] {
	return func(yield func(reflect.Method) bool) {
		for m := range client.Methods() {
			if !yield(m) {
				return
			}
			if leads(m) {
				for below := range m.Type.Out(0).Methods() {
					if !yield(below) {
						return
					}
				}
			}
		}
	}
}

// leads reports whether a method makes no call and only returns another client.
func leads(m reflect.Method) bool {
	if m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.Struct {
		return false
	}
	_, ok := m.Type.Out(0).FieldByName("Client")
	return ok
}
