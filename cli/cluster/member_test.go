package cluster

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestMembers(t *testing.T) {
	down := machinesapi.Member{
		ID: "gru-2", Role: bourse.RoleWorker, Region: "gru", Status: machinesapi.MemberDown,
		Since: clitest.Now.Add(-time.Hour), Machines: 3, Volumes: 1,
	}
	up := machinesapi.Member{ID: "p1", Role: bourse.RoleProxy, Region: "gru", Address: "10.0.0.7:4282", Status: machinesapi.MemberOK}
	proxy := machinesapi.Member{ID: "p2", Role: bourse.RoleProxy, Region: "gru", Status: machinesapi.MemberDown} // since an unknown time
	api := http.NewServeMux()
	api.Handle("GET /v1/members", clitest.Replies(http.StatusOK, machinesapi.MemberList{Members: []machinesapi.Member{down, up, proxy}}))
	api.Handle("DELETE /v1/members/gru-2", clitest.Replies(http.StatusOK, down))
	api.Handle("DELETE /v1/members/p2", clitest.Replies(http.StatusOK, proxy))
	api.Handle("DELETE /v1/members/p1", clitest.Replies(http.StatusOK, up))
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"list"}, 0, "MEMBER  ROLE    REGION  STATUS            ADDRESS\ngru-2   worker  gru     DOWN since 11:00  -\np1      proxy   gru     ok                10.0.0.7:4282\np2      proxy   gru     DOWN              -\n"},
		{[]string{"remove", "gru-2"}, 2, "remove worker gru-2, DOWN since 11:00, with 3 machines and 1 volume?"},
		{[]string{"remove", "--yes", "gru-2"}, 0, "gru-2  removed, with 3 machines and 1 volume\n"},
		{[]string{"remove", "p2"}, 2, "remove proxy p2, DOWN?"},
		{[]string{"remove", "--yes", "p2"}, 0, "p2  removed\n"},
		{[]string{"remove", "--yes", "p1"}, 5, "proxy p1 is running: stop it first"},
		{[]string{"remove", "--yes", "--force", "p1"}, 0, "p1  removed\n"},
		{[]string{"remove", "--yes", "nobody"}, 3, "bourse member list"},
	} {
		got := line.Against(t, api, append([]string{"member"}, c.args...)...)
		if got.Code != c.code || !strings.Contains(got.Out+got.Err, c.want) {
			t.Errorf("%q: exit status %d, %q %q; want %d with %q", c.args, got.Code, got.Out, got.Err, c.code, c.want)
		}
	}
}
