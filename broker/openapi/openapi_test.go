package openapi

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestWhatBourseAddsIsMarked checks that a member is marked as Bourse's addition if and only if it is missing from the
// Machines API's client.
func TestWhatBourseAddsIsMarked(t *testing.T) {
	for own, theirs := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[machinesapi.CreateMachine](): reflect.TypeFor[fly.LaunchMachineInput](),
		reflect.TypeFor[machinesapi.CreateVolume]():  reflect.TypeFor[fly.CreateVolumeRequest](),
		reflect.TypeFor[bourse.Config]():             reflect.TypeFor[fly.MachineConfig](),
		reflect.TypeFor[machinesapi.Machine]():       reflect.TypeFor[fly.Machine](),
		reflect.TypeFor[machinesapi.App]():           reflect.TypeFor[flaps.App](),
		reflect.TypeFor[machinesapi.Volume]():        reflect.TypeFor[fly.Volume](),
	} {
		known := names(theirs)
		for _, name := range names(own) {
			if added := !slices.Contains(known, name) && !slices.Contains(documented, nameOf(own)+"."+name); added != isAddition(nameOf(own), name) {
				t.Errorf("%s.%s: missing from fly-go's %s: %t; marked with x-bourse: %t", nameOf(own), name, theirs, added, !added)
			}
		}
	}
}

// documented contains members that the Machines API's documentation lists, but its client does not
// use.
var documented = []string{
	"App.created_at", "CreateVolume.host_dedication_id", "Machine.lease", "Volume.block_size", "Volume.blocks", "Volume.blocks_avail", "Volume.blocks_free", "Volume.bytes_total",
	"Volume.bytes_used", "Volume.fstype", "Volume.type",
}

func names(t reflect.Type) []string {
	properties := object{}
	(&schemas{named: object{}, read: map[reflect.Type]bool{}}).add(t, properties, &[]string{}, true)
	out := []string{}
	for name := range properties {
		out = append(out, strings.ToLower(name))
	}
	slices.Sort(out)
	return out
}

func TestSame(t *testing.T) {
	for _, pair := range []struct {
		a, b string
		want bool
	}{
		{"GET /v1/apps/{app}", "GET /v1/apps/{name}", true},
		{"GET /v1/apps/{app}/a/{rest...}", "GET /v1/apps/{app}/a/{x}", true},
		{"GET /v1/apps/{app}", "PUT /v1/apps/{app}", false},
		{"GET /v1/apps/{app}", "GET /v1/apps/{app}/machines", false},
	} {
		if got := Same(pair.a, pair.b); got != pair.want {
			t.Errorf("%s and %s: %t", pair.a, pair.b, got)
		}
	}
}
