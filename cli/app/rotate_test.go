package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// rotating is an API that carries out a rotation's steps in order. The first request must start it.
type rotating struct {
	*testing.T
	steps []machinesapi.Rotation
	asked int
}

func (r *rotating) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var in machinesapi.Rotate
	if err := json.NewDecoder(req.Body).Decode(&in); err != nil || in.Start != (r.asked == 0 || r.steps[r.asked-1].Step == machinesapi.RotationCheck) {
		r.Errorf("request %d: %+v, %v", r.asked, in, err)
	}
	out := r.steps[min(r.asked, len(r.steps)-1)]
	r.asked++
	_ = json.NewEncoder(w).Encode(out) // the client may have left
}

func TestRotate(t *testing.T) {
	ok := []machinesapi.RotationServer{{ID: "b1", Role: bourse.RoleBroker, OK: true}, {ID: "w1", Role: bourse.RoleWorker, OK: true}}
	down := []machinesapi.RotationServer{ok[0], {ID: "w1", Role: bourse.RoleWorker, Error: "the worker is down"}}
	add := machinesapi.Rotation{Step: machinesapi.RotationAdd, Servers: ok}
	use := machinesapi.Rotation{Step: machinesapi.RotationUse, Servers: ok}
	remove := machinesapi.Rotation{Step: machinesapi.RotationRemove, Servers: ok, Done: true}
	for _, c := range []struct {
		name  string
		steps []machinesapi.Rotation
		args  []string
		code  int
		want  []string
	}{
		{"all servers answer", []machinesapi.Rotation{add, use, remove}, nil, 0, []string{
			"give all servers the new key    2 of 2 servers\nencrypt with the new key        2 of 2 servers\nremove the old key              2 of 2 servers\nthe key of the membership was replaced\n",
		}},
		{"one is down for a moment", []machinesapi.Rotation{{Step: machinesapi.RotationCheck, Servers: down}, add, {Step: machinesapi.RotationUse, Servers: down}, use, remove}, []string{"--wait", "1h"}, 0, []string{
			"check that all servers answer   1 of 2 servers\ngive all servers the new key    2 of 2 servers\nencrypt with the new key        1 of 2 servers\nencrypt with the new key        2 of 2 servers\n",
		}},
		{"one stays down", []machinesapi.Rotation{add, {Step: machinesapi.RotationUse, Servers: down}}, []string{"--wait", "-1s"}, 7, []string{
			"w1: the worker is down", `the step "encrypt with the new key", which 1 server has not done`, "repeat the command", "bourse member remove",
		}},
		{"the old key is needed", []machinesapi.Rotation{add, {Step: machinesapi.RotationUse, Servers: ok, Blocked: "3 secrets"}}, nil, 5, []string{
			"encrypt with the new key        2 of 2 servers\n", "cannot be removed yet: 3 secrets", "bourse secrets set",
		}},
		{"as JSON", []machinesapi.Rotation{add, remove}, []string{"--json"}, 0, []string{`"step":"add"`, `"done":true`}},
	} {
		api := http.NewServeMux()
		api.Handle("POST /v1/keys/gossip/rotation", &rotating{T: t, steps: c.steps})
		got := line.Against(t, api, append([]string{"credentials", "rotate", "gossip"}, c.args...)...)
		for _, want := range c.want {
			if got.Code != c.code || !strings.Contains(got.Out+got.Err, want) {
				t.Errorf("%s: exit status %d, %q %q; want %d with %q", c.name, got.Code, got.Out, got.Err, c.code, want)
			}
		}
	}
	refused := clitest.Replies(http.StatusPreconditionFailed, map[string]string{"error": "this cluster has no certificates"})
	if got := line.Against(t, refused, "credentials", "rotate", "gossip"); got.Code != 5 {
		t.Errorf("without certificates: %+v", got)
	}
}
