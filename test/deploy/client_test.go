package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// errand contains instructions for a client in a separate process: it executes a plan, and kills or suspends itself at
// one event.
type errand struct {
	API   string    `json:"api"`
	Token string    `json:"token"`
	Plan  plan      `json:"plan"`
	Step  int       `json:"step"`
	State run.State `json:"state"`
	Stops bool      `json:"stops,omitempty"` // suspend the client instead of killing it
}

// plan is a deploy.Plan that can be decoded from JSON.
type plan struct{ deploy.Plan }

func (p *plan) UnmarshalJSON(text []byte) error {
	type fields deploy.Plan
	var in struct {
		fields
		Steps []json.RawMessage `json:"steps"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	p.Plan = deploy.Plan(in.fields)
	for _, raw := range in.Steps {
		var name struct {
			Do string `json:"do"`
		}
		var s deploy.Step
		if err := errors.Join(json.Unmarshal(raw, &name), json.Unmarshal(raw, &s)); err != nil {
			return err
		}
		i := slices.IndexFunc(deploy.Actions(), func(a deploy.Action) bool { return a.String() == name.Do })
		if i < 0 {
			return fmt.Errorf("unknown action %q", name.Do)
		}
		do := reflect.New(reflect.TypeOf(deploy.Actions()[i]))
		if err := json.Unmarshal(raw, do.Interface()); err != nil {
			return err
		}
		s.Do = do.Elem().Interface().(deploy.Action)
		p.Steps = append(p.Steps, s)
	}
	return nil
}

// clientResult is the last output of a client that was suspended.
type clientResult struct {
	Error     string     `json:"error"`
	Overtaken bool       `json:"overtaken"`
	Result    run.Result `json:"result"`
}

// leaseTTL is the duration of the clients' leases. The next client has to wait this long after a client was killed.
const leaseTTL = time.Second

// runClient executes the errand in the file that clientVariable names.
func runClient() error {
	text, err := os.ReadFile(os.Getenv(clientVariable))
	if err != nil {
		return err
	}
	var e errand
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	api := run.NewAPI(&machinesapi.Client{BaseURL: e.API, Token: e.Token}, e.Plan.App)
	result, err := run.Run(context.Background(), api, e.Plan.Plan, run.Options{Owner: owner, LeaseTTL: leaseTTL, Wait: waitTimeout, Release: e.Plan.Release, Events: func(news run.Event) {
		switch {
		case news.Step != e.Step || news.State != e.State:
		case e.Stops:
			fmt.Fprintln(os.Stdout, "suspended")
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // returns when the process is continued
		default:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // does not return
		}
	}})
	if err == nil || !e.Stops {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(clientResult{err.Error(), errors.Is(err, run.ErrOvertaken), result})
}

// owner is the description of all clients that run in separate processes.
const owner = "ana@laptop, release v2"

// killed executes a plan in a process that kills itself when the given step reaches the
// given state.
func (h *house) killed(p deploy.Plan, step int, state run.State) {
	h.Helper()
	err := h.sent(errand{Plan: plan{p}, Step: step, State: state}).Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
		h.Fatalf("the client exited with %v before it could be killed at step %d, %s", err, step, state)
	}
}

// sent returns a command that runs a client with an errand. The caller must start it.
func (h *house) sent(e errand) *exec.Cmd {
	h.Helper()
	token, err := os.ReadFile(h.broker.TokenFile)
	if err != nil {
		h.Fatal(err)
	}
	e.API, e.Token = "http://"+h.broker.API, strings.TrimSpace(string(token))
	text, err := json.Marshal(e)
	if err != nil {
		h.Fatal(err)
	}
	file := filepath.Join(h.TempDir(), "errand.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		h.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	c := exec.CommandContext(h.Context(), self)
	c.Env = append(os.Environ(), clientVariable+"="+file)
	c.Stderr = h.Output()
	return c
}

// killedAtOnce is the number of clients that are killed concurrently. Most of the time is
// spent waiting for their leases to expire.
const killedAtOnce = 3

var all = flag.Bool("all", false, "kill clients both when a step begins and when it has ended, and both complete and undo the deploy afterwards; deploy every file")

// TestKilledClients kills a client at each step of each strategy. If the client is killed
// when the step begins, another client must be able to complete the deploy. If it is killed
// when the step has ended, another client must be able to undo it. With -all, both are
// tested in both cases.
func TestKilledClients(t *testing.T) {
	h := newHouse(t)
	h.app("sample", 2)
	slots := make(chan struct{}, killedAtOnce)
	var group sync.WaitGroup
	strategies := []deploy.Strategy{deploy.Rolling, deploy.Canary, deploy.BlueGreen}
	if *all {
		strategies = append(strategies, deploy.Immediate)
	}
	for _, strategy := range strategies {
		for step := range h.plan(wanted(h, "sample", "v2", strategy, 2), release.Release{}).Steps {
			for _, k := range kills(step) {
				group.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					t.Run(fmt.Sprintf("%s %d %s to %s", strategy, step, k.state, k.version), func(t *testing.T) {
						h.in(t).continues(strategy, step, k.state, k.version)
					})
				})
			}
		}
	}
	group.Wait()
}

// kill describes when a client is killed, and which version the app must have after another
// client has continued.
type kill struct {
	state   run.State
	version string
}

func kills(step int) []kill {
	switch {
	case *all:
		return []kill{{run.Running, "v2"}, {run.Running, "v1"}, {run.Done, "v2"}, {run.Done, "v1"}}
	case step%2 == 1:
		return []kill{{run.Done, "v1"}}
	default:
		return []kill{{run.Running, "v2"}}
	}
}

// continues kills a client at one event, and has another client change all machines to the given version.
func (h *house) continues(strategy deploy.Strategy, step int, state run.State, version string) {
	app := bourse.AppName(fmt.Sprintf("%s-%d-%s-%s", strategy, step, state, version))
	was, next := wanted(h, app, "v1", strategy, 2), wanted(h, app, "v2", strategy, 2)
	first := h.app(app, 2)
	second := h.release(app)
	h.killed(h.plan(next, second), step, state)
	if r := h.newest(app); r.ID != second.ID || r.Status != release.Running || !bytes.Contains(r.Metadata, []byte("kept")) {
		h.Errorf("the newest release is %+v, want %s, running, whose metadata contains \"kept\"", r, second.ID)
	}
	plan := func() deploy.Plan {
		if version == "v1" {
			return h.back(was, second, first)
		}
		return h.plan(next, second)
	}
	// A request of the killed client may take effect after the plan was created. The run then fails with conflict, and
	// the plan is created again.
	for tries := 3; tries > 0; tries-- {
		p := plan()
		if len(p.Steps) == 0 {
			break
		}
		result, err := h.run(p, run.Options{LeaseTTL: leaseTTL})
		switch {
		case bourse.CodeOf(err) == bourse.CodeConflict:
			h.Log("planned again: ", err)
		case err != nil:
			h.Errorf("Run: %v, %+v; want success or a conflict", err, result)
		}
	}
	list := h.machines(app)
	if len(list) != 2 {
		h.Errorf("the app has %d machines, want 2", len(list))
	}
	for _, m := range list {
		if v := m.Config.Env[machineVariable]; v != version || m.State != bourse.StateStarted || m.Cordoned {
			h.Errorf("machine %s is %s, version %s, cordoned: %v; want %s", m.ID, m.State, v, m.Cordoned, version)
		}
	}
	if again := plan(); len(again.Steps) > 0 {
		h.Errorf("the plan still has steps, want none: %+v", again.Steps)
	}
}

// newest returns an app's newest release.
func (h *house) newest(app bourse.AppName) release.Release {
	h.Helper()
	list, err := h.api.Releases(app).List(h.Context(), 1)
	if err != nil || len(list) != 1 {
		h.Fatalf("releases of %s: %v, %v; want one", app, list, err)
	}
	return list[0]
}
