package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestVerbs(t *testing.T) {
	for _, c := range []struct {
		name   string
		state  bourse.State
		method string
		path   string
		body   string
		status int
		reply  string // expected prefix of the reply
		act    fabric.MachineAction
	}{
		{"start", bourse.StateStopped, "POST", "/start", "", 200, `{"previous_state":"stopped","migrated":false,"new_host":""}`, fabric.MachineAction{}},
		{"start of a started machine", bourse.StateStarted, "POST", "/start", "", 200, `{"previous_state":"started"`, fabric.MachineAction{}},
		{"start of a created machine", bourse.StateCreated, "POST", "/start", "", 412, `{"error":"failed_precondition: unable to start machine from current state: 'created'"`, fabric.MachineAction{}},
		{"stop in fly-go's form", bourse.StateStarted, "POST", "/stop", `{"id":"x","timeout":"0s"}`, 200, `{"ok":true}`, fabric.MachineAction{}},
		{"stop without a body", bourse.StateStarted, "POST", "/stop", "", 200, `{"ok":true}`, fabric.MachineAction{}},
		{"suspend", bourse.StateStarted, "POST", "/suspend", "", 200, `{"ok":true}`, fabric.MachineAction{}},
		{"stop of a stopped machine", bourse.StateStopped, "POST", "/stop", "", 200, `{"ok":true}`, fabric.MachineAction{}},
		{"stop with a signal's number and nanoseconds", bourse.StateStarted, "POST", "/stop", `{"signal":15,"timeout":2000000000}`, 200, `{"ok":true}`, fabric.MachineAction{Signal: "SIGTERM", Timeout: bourse.Duration(2 * time.Second)}},
		{"restart", bourse.StateStarted, "POST", "/restart?force_stop=false", "", 200, `{"ok":true}`, fabric.MachineAction{}},
		{"restart with all", bourse.StateStarted, "POST", "/restart?force_stop=true&timeout=1m30s&signal=SIGQUIT", "", 200, `{"ok":true}`, fabric.MachineAction{Force: true, Signal: "SIGQUIT", Timeout: bourse.Duration(90 * time.Second)}},
		{"restart with seconds", bourse.StateStarted, "POST", "/restart?timeout=7", "", 200, `{"ok":true}`, fabric.MachineAction{Timeout: bourse.Duration(7 * time.Second)}},
		{"kill in fly-go's form", bourse.StateStarted, "POST", "/signal", `{"signal":9}`, 200, `{"ok":true}`, fabric.MachineAction{Signal: "SIGKILL"}},
		{"signal to a stopped machine", bourse.StateStopped, "POST", "/signal", `{"signal":"SIGHUP"}`, 412, `{"error":"failed_precondition: `, fabric.MachineAction{Signal: "SIGHUP"}},
		{"cordon", bourse.StateStarted, "POST", "/cordon", "", 200, `{"ok":true}`, fabric.MachineAction{}},
		{"uncordon", bourse.StateStarted, "POST", "/uncordon", "", 200, `{"ok":true}`, fabric.MachineAction{}},
		{"destroy", bourse.StateStopped, "DELETE", "?kill=false", "", 200, `{"ok":true}`, fabric.MachineAction{}},
		{"destroy of a running machine", bourse.StateStarted, "DELETE", "", "", 412, `{"error":"failed_precondition: unable to destroy machine, not currently stopped"`, fabric.MachineAction{}},
		{"destroy with kill", bourse.StateStarted, "DELETE", "?kill=true", "", 200, `{"ok":true}`, fabric.MachineAction{Force: true}},
		{"destroy with force", bourse.StateStarted, "DELETE", "?force=true", "", 200, `{"ok":true}`, fabric.MachineAction{Force: true}},
		{"destroy again", bourse.StateDestroyed, "DELETE", "?force=true", "", 404, `{"error":"not_found: machine not found"`, fabric.MachineAction{Force: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t)
			m := s.machine(t, "w2", "web", c.state)
			rec := s.call(t, c.method, "/v1/apps/shop/machines/"+string(m.ID)+c.path, c.body, "fly-machine-lease-nonce", "n0nce")
			if rec.Code != c.status || !strings.HasPrefix(rec.Body.String(), c.reply) {
				t.Errorf("status %d, %s; want %d, %s", rec.Code, rec.Body, c.status, c.reply)
			}
			c.act.Nonce = "n0nce"
			c.act.By = "local" // the caller's name
			if diff := cmp.Diff([]fabric.MachineAction{c.act}, s.workers["w2"].acts); diff != "" {
				t.Errorf("the worker received (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMachineIDDeterminesTheWorker checks that a request about a machine goes to the worker that
// the machine's ID determines, and to no other worker.
func TestMachineIDDeterminesTheWorker(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w3", "web", bourse.StateStopped)
	s.workers["w1"].silence(errDown)
	s.workers["w2"].silence(errDown)
	if rec := s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/start", ""); rec.Code != http.StatusOK {
		t.Errorf("status %d: %s", rec.Code, rec.Body)
	}
	if n := s.workers["w1"].called("machine/start") + s.workers["w2"].called("machine/start"); n != 0 {
		t.Errorf("%d calls went to other workers", n)
	}
}

// TestVerbsReadTheMachineOnce checks that a machine's app, which never changes, is fetched only once.
func TestVerbsReadTheMachineOnce(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStopped)
	for range 5 {
		s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/start", "")
	}
	if got := s.workers["w1"].called("machine/show"); got != 1 {
		t.Errorf("the machine was read %d times, want once", got)
	}
	if rec := s.call(t, "POST", "/v1/apps/other/machines/"+string(m.ID)+"/start", ""); rec.Code != http.StatusNotFound {
		t.Errorf("through another app's path: status %d", rec.Code)
	}
}

// TestCodeOfLostVerb checks the error for a lost response, which depends on whether the request may have had an effect.
func TestCodeOfLostVerb(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStopped)
	path := "/v1/apps/shop/machines/" + string(m.ID)
	s.call(t, "GET", path, "")
	for _, c := range []struct {
		err    error
		status int
		code   bourse.Code
	}{
		{errDown, 503, bourse.CodeUnavailable},
		{errLost, 408, bourse.CodeTimeout},
		{http.ErrHandlerTimeout, 408, bourse.CodeTimeout}, // this error has no code
	} {
		s.workers["w1"].silence(c.err)
		rec := s.call(t, "POST", path+"/start", "")
		if got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes()); rec.Code != c.status || got.Code != c.code {
			t.Errorf("%v: status %d, body %+v; want %d %s", c.err, rec.Code, got, c.status, c.code)
		}
	}
}

func TestStartOnAFullHostIs409(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStopped)
	s.workers["w1"].full = true
	rec := s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/start", "")
	got := decodeBody[machinesapi.ErrorBody](t, rec.Body.Bytes())
	want := "aborted: could not reserve resource for machine: insufficient memory available to fulfill request on the current host"
	if rec.Code != http.StatusConflict || got.Error != want || got.Status != "insufficient_capacity" {
		t.Errorf("status %d, body %+v", rec.Code, got)
	}
}

func TestExec(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       fabric.ExecRequest
	}{
		{"as fly-go asks", `{"cmd":"sh -c 'echo \"a  b\"'"}`, fabric.ExecRequest{Command: []string{"sh", "-c", `echo "a  b"`}, Timeout: bourse.Duration(time.Minute)}},
		{"as documented", `{"command":["ls","-l"],"timeout":5,"stdin":"in"}`, fabric.ExecRequest{Command: []string{"ls", "-l"}, Stdin: []byte("in"), Timeout: bourse.Duration(5 * time.Second)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t)
			m := s.machine(t, "w1", "web", bourse.StateStarted)
			rec := s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/exec", c.body)
			got := decodeBody[machinesapi.ExecReply](t, rec.Body.Bytes())
			if rec.Code != http.StatusOK || got.ExitCode != 3 || !strings.HasPrefix(got.Stdout, "[") || got.Stderr != string(c.want.Stdin) {
				t.Errorf("status %d: %+v", rec.Code, got)
			}
			if diff := cmp.Diff(c.want, s.workers["w1"].execs[0], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the worker received (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a missing command", func(t *testing.T) {
		s := start(t)
		m := s.machine(t, "w1", "web", bourse.StateStarted)
		if rec := s.call(t, "POST", "/v1/apps/shop/machines/"+string(m.ID)+"/exec", `{"cmd":"missing"}`); rec.Code != http.StatusBadRequest {
			t.Errorf("status %d", rec.Code)
		}
	})
}
