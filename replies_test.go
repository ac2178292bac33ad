package bourse_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	fly "github.com/superfly/fly-go"
	"github.com/superfly/fly-go/flaps"

	"github.com/bourse-dev/bourse/machinesapi"
)

// unwritten contains members that a client reads from replies but that Bourse's replies do not
// contain, with the reasons. An entry applies to everything below it as well.
var unwritten = map[string]string{
	"machine.config":                        "comes back as it was sent: see TestFieldsNameEveryMemberThatClientsSend",
	"machine.incomplete_config":             "a part of config, as that comes back",
	"machine.containers":                    "a machine has one program",
	"machine.events[].request.MonitorEvent": "the older of two places: exit_event is beside it",
	"app.cname_target":                      "there are no names of the platform's own",
	"app.app_role":                          "no app has another role than to be one",
	"lease.message":                         "of errors, which have a body of their own",
	"lease.code":                            "likewise",
	"region.gateway_available":              "false: there is no gateway of WireGuard",
	"region.requires_paid_plan":             "false",
	"region.deprecated":                     "false",
	"region.mpg_available":                  "false: there is no managed Postgres",
	"region.capacity":                       "a quote says what fits",
	"start.message":                         "of errors, which have a body of their own",
	"start.status":                          "likewise",
}

var replies = map[string]struct{ theirs, ours reflect.Type }{
	"machine":  {reflect.TypeFor[fly.Machine](), reflect.TypeFor[machinesapi.Machine]()},
	"app":      {reflect.TypeFor[flaps.App](), reflect.TypeFor[machinesapi.App]()},
	"volume":   {reflect.TypeFor[fly.Volume](), reflect.TypeFor[machinesapi.Volume]()},
	"snapshot": {reflect.TypeFor[fly.VolumeSnapshot](), reflect.TypeFor[machinesapi.Snapshot]()},
	"lease":    {reflect.TypeFor[fly.MachineLease](), reflect.TypeFor[machinesapi.LeaseEnvelope]()},
	"region":   {reflect.TypeFor[fly.Region](), reflect.TypeFor[machinesapi.Region]()},
	"start":    {reflect.TypeFor[fly.MachineStartResponse](), reflect.TypeFor[machinesapi.StartReply]()},
	"exec":     {reflect.TypeFor[fly.MachineExecResponse](), reflect.TypeFor[machinesapi.ExecReply]()},
}

// TestRepliesHaveWhatClientsRead checks that replies contain every member that a client reads,
// unless unwritten contains a reason.
func TestRepliesHaveWhatClientsRead(t *testing.T) {
	for name, reply := range replies {
		written := map[string]bool{}
		for _, path := range members(reply.ours, name+".") {
			written[path] = true
		}
		for _, path := range members(reply.theirs, name+".") {
			if !written[path] && !excused(path) {
				t.Errorf("clients read %s, but the reply does not contain it", path)
			}
		}
	}
}

// TestReasonsAreNeeded checks that unwritten does not list members that clients no longer read.
func TestReasonsAreNeeded(t *testing.T) {
	for at := range unwritten {
		name, _, _ := strings.Cut(at, ".")
		if reply, ok := replies[name]; !ok || !slices.ContainsFunc(members(reply.theirs, name+"."), func(path string) bool { return strings.HasPrefix(path, at) }) {
			t.Errorf("unwritten lists %s, but no client reads it", at)
		}
	}
}

func excused(path string) bool {
	for at := range unwritten {
		if rest, ok := strings.CutPrefix(path, at); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}
