package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// copyOf returns the report of a member that has received all changes.
func copyOf(id bourse.WorkerID, role bourse.Role, region bourse.Region) machinesapi.MemberHealth {
	return machinesapi.MemberHealth{
		ID: id, Role: role, Region: region, Reachable: true, Version: "v0.2.0", Epoch: 7, Streams: 1,
		Heads:  []machinesapi.ViewHead{{Site: "gru-1", Epoch: 7, Seq: 12, At: clitest.Now.Add(-90 * time.Second)}},
		Tables: []machinesapi.ViewTable{{Name: "app", Rows: 1, Checksum: "00000000000000aa"}, {Name: "machine", Rows: 41, Checksum: "00000000000000bb"}},
	}
}

func fleet() []machinesapi.MemberHealth {
	return []machinesapi.MemberHealth{
		copyOf("broker", bourse.RoleBroker, ""), copyOf("gru-1", bourse.RoleWorker, "gru"), copyOf("gru-2", bourse.RoleWorker, "gru"),
		copyOf("mad-1", bourse.RoleWorker, "mad"),
	}
}

// troubled returns the members of a cluster with one problem of each kind.
func troubled() []machinesapi.MemberHealth {
	f := fleet()
	f[1].Tables[1] = machinesapi.ViewTable{Name: "machine", Rows: 40, Checksum: "00000000000000cc"}
	f[2].Heads[0].Seq = 9
	f[2].Queue = machinesapi.ViewQueue{Transactions: 3, Bytes: 4096, Dropped: 17}
	refused := machinesapi.QuarantinedRow{Site: "mad-2", Epoch: 3, Seq: 8, Table: "machine", Key: "148e21ea1d5389", Reason: "clock is 365 days ahead of ours", Since: clitest.Now.Add(-5 * time.Minute)}
	f[2].Quarantine = machinesapi.ViewQuarantine{Rows: 1, Newest: []machinesapi.QuarantinedRow{refused}}
	f[3].Quarantine = f[2].Quarantine
	return append(f, machinesapi.MemberHealth{ID: "mad-2", Role: bourse.RoleWorker, Region: "mad", Error: "connection refused\x1b[2J"})
}

// down returns a worker that was killed.
func down() machinesapi.MemberHealth {
	return machinesapi.MemberHealth{
		ID: "ord-1", Role: bourse.RoleWorker, Region: "ord", DownSince: clitest.Now.Add(-time.Hour), ViewLag: machinesapi.ViewLag{State: machinesapi.ViewDown},
	}
}

func TestViewHealth(t *testing.T) {
	for name, c := range map[string]struct {
		members []machinesapi.MemberHealth
		code    int
	}{"view_health": {fleet(), 0}, "view_health_troubled_wide": {troubled(), 5}, "view_health_one": {fleet()[:1], 0}, "view_health_down": {append(fleet(), down()), 5}} {
		h := machinesapi.CompareViews(c.members, clitest.Now)
		got := line.Against(t, clitest.Replies(http.StatusOK, h), "view", "health")
		if got.Code != c.code || got.Err != "" {
			t.Errorf("%s: exit status %d, stderr %q; want %d and no output", name, got.Code, got.Err, c.code)
		}
		clitest.Golden(t, name, got.Out)
		got = line.Against(t, clitest.Replies(http.StatusOK, h), "view", "health", "--json")
		var back machinesapi.ViewHealth
		if err := json.Unmarshal([]byte(got.Out), &back); err != nil || got.Code != c.code {
			t.Errorf("%s as JSON: exit status %d, %v", name, got.Code, err)
		}
		if diff := cmp.Diff(h, back); diff != "" {
			t.Errorf("%s as JSON (-want +got):\n%s", name, diff)
		}
	}
	behind := fleet()
	behind[2].Heads[0].Seq = 11
	if got := line.Against(t, clitest.Replies(http.StatusOK, machinesapi.CompareViews(behind, clitest.Now.Add(-89*time.Second))), "view", "health"); got.Code != 0 || !strings.HasSuffix(got.Out, "\n4 members agree\ngru-2 is still receiving 1 transaction\n") {
		t.Errorf("a member that is catching up: exit status %d, want 0\n%s", got.Code, got.Out)
	}
}

// TestViewHealthWaits checks that --wait polls until every member has received all changes
// or the time limit is reached.
func TestViewHealthWaits(t *testing.T) {
	for name, c := range map[string]struct {
		settles int // number of the first request for which every member is ok
		asked   int
		code    int
	}{"ok in time": {3, 3, 0}, "not in time": {100, 5, 5}} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			s := &cli.Shell{Env: cli.Env{Getenv: func(string) string { return "" }, Now: time.Now, Transport: roundTrip(func(*http.Request) machinesapi.ViewHealth {
				members := fleet()
				if asked++; asked < c.settles {
					members = members[:2]
					members[0].Heads[0].Seq--
				}
				return machinesapi.CompareViews(members, clitest.Now)
			})}}
			out, _ := clitest.Buffer("")
			s.Out, s.Err = out, out
			cmd := newHealth(s)
			cmd.SetArgs([]string{"--wait", "2s"})
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			if code := cli.ExitCode(cmd.ExecuteContext(t.Context())); code != c.code || asked != c.asked {
				t.Errorf("%s: exit status %d after %d requests, want %d after %d", name, code, asked, c.code, c.asked)
			}
		})
	}
}

// roundTrip answers API requests without a network.
type roundTrip func(*http.Request) machinesapi.ViewHealth

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	clitest.Replies(http.StatusOK, f(r)).ServeHTTP(w, r)
	return w.Result(), nil
}
