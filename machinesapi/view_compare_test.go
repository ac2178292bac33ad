package machinesapi_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// member returns a member with the first a transactions of site a and the first b transactions of
// site b. The last transaction of site b is age old. sum is the checksum of the member's machines.
func member(id string, a, b uint64, age time.Duration, sum string) machinesapi.MemberHealth {
	return machinesapi.MemberHealth{
		ID: bourse.WorkerID(id), Role: bourse.RoleWorker, Region: "gru", Reachable: true,
		Heads:  []machinesapi.ViewHead{{Site: "a", Epoch: 1, Seq: a, At: noon.Add(-time.Hour)}, {Site: "b", Epoch: 1, Seq: b, At: noon.Add(-age)}},
		Tables: []machinesapi.ViewTable{{Name: "app", Checksum: "0"}, {Name: "machine", Checksum: sum}},
	}
}

func TestCompareViews(t *testing.T) {
	gone := machinesapi.MemberHealth{ID: "z", Role: bourse.RoleBroker, Error: "connection refused"}
	told := member("c", 9, 9, 0, "x")
	told.Gaps, told.Behind, told.LagMS = 1, 2, 60_000 // the member itself reports these values
	fewer := member("c", 9, 9, 0, "x")
	fewer.Heads = fewer.Heads[:1]
	for name, c := range map[string]struct {
		in     []machinesapi.MemberHealth
		want   []string
		agrees bool
	}{
		"all the same": {
			[]machinesapi.MemberHealth{member("a", 9, 9, 0, "x"), member("b", 9, 9, 0, "x")},
			[]string{"a ok 0 0 0ms []", "b ok 0 0 0ms []"},
			true,
		},
		"changes in transit, so rows may differ": {
			[]machinesapi.MemberHealth{member("a", 9, 9, time.Second, "x"), member("b", 9, 7, time.Minute, "y")},
			[]string{"a ok 0 0 0ms []", "b catching up 1 2 1000ms []"},
			true,
		},
		"changes in transit for too long": {
			[]machinesapi.MemberHealth{member("a", 9, 9, time.Minute, "x"), member("b", 8, 7, 2*time.Minute, "y")},
			[]string{"a ok 0 0 0ms []", "b behind 2 3 3600000ms []"},
			false,
		},
		"each lacks transactions of the other": {
			[]machinesapi.MemberHealth{member("a", 9, 8, 0, "x"), member("b", 8, 9, 0, "y")},
			[]string{"a catching up 1 1 0ms []", "b behind 1 1 3600000ms []"},
			false,
		},
		"an unknown stream": {
			[]machinesapi.MemberHealth{member("a", 9, 9, time.Minute, "x"), fewer},
			[]string{"a ok 0 0 0ms []", "c behind 1 9 60000ms []"},
			false,
		},
		"the member's own report counts": {
			[]machinesapi.MemberHealth{told},
			[]string{"c behind 1 2 60000ms []"},
			false,
		},
		"one differs": {
			[]machinesapi.MemberHealth{member("a", 9, 9, 0, "x"), member("b", 9, 9, 0, "y"), member("c", 9, 9, 0, "x")},
			[]string{"a ok 0 0 0ms []", "b differs 0 0 0ms [machine]", "c ok 0 0 0ms []"},
			false,
		},
		"two differ without a majority": {
			[]machinesapi.MemberHealth{member("a", 9, 9, 0, "x"), member("b", 9, 9, 0, "y")},
			[]string{"a differs 0 0 0ms [machine]", "b differs 0 0 0ms [machine]"},
			false,
		},
		"an unreachable member is ignored": {
			[]machinesapi.MemberHealth{gone, member("a", 9, 9, 0, "x")},
			[]string{"a ok 0 0 0ms []", "z unreachable 0 0 0ms []"},
			false,
		},
		"nobody": {nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := machinesapi.CompareViews(c.in, noon)
			var got []string
			for _, m := range h.Members {
				got = append(got, fmt.Sprintf("%s %s %d %d %dms %v", m.ID, m.State, m.Gaps, m.Behind, m.LagMS, m.Differs))
			}
			if diff := cmp.Diff(c.want, got); diff != "" || h.Agrees != c.agrees {
				t.Errorf("agrees %t, want %t (-want +got):\n%s", h.Agrees, c.agrees, diff)
			}
		})
	}
}
