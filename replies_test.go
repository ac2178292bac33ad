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

// unwritten lists the members that a client reads but that Bourse's replies do not contain. It maps
// each of them to the reason. An entry also applies to everything below it.
var unwritten = map[string]string{
	"machine.config":                        "returned as it was sent: see TestFieldsNameEveryMemberThatClientsSend",
	"machine.incomplete_config":             "part of config, which is returned as it was sent",
	"machine.containers":                    "a machine has one program",
	"machine.events[].request.MonitorEvent": "an older duplicate of exit_event, which replies contain",
	"app.cname_target":                      "the platform does not assign host names to apps",
	"app.app_role":                          "all apps have the same role",
	"lease.message":                         "only for errors, which have their own type of body",
	"lease.code":                            "only for errors",
	"region.gateway_available":              "false: there are no WireGuard gateways",
	"region.requires_paid_plan":             "false",
	"region.deprecated":                     "false",
	"region.mpg_available":                  "false: there is no managed Postgres",
	"region.capacity":                       "a quote shows which machines fit",
	"start.message":                         "only for errors, which have their own type of body",
	"start.status":                          "only for errors",
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

// TestReasonsAreNeeded checks that unwritten does not list any members that clients no longer read.
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
