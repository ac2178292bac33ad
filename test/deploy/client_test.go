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

// errand is what a client of its own is to do: carry a plan out, and kill or suspend
// itself at one event.
type errand struct {
	API   string    `json:"api"`
	Token string    `json:"token"`
	Plan  plan      `json:"plan"`
	Step  int       `json:"step"`
	State run.State `json:"state"`
	Stops bool      `json:"stops,omitempty"` // it is suspended then, and not killed
}

// plan is a plan that can be decoded.
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

// told is what a client that was suspended says at its end.
type told struct {
	Error     string     `json:"error"`
	Overtaken bool       `json:"overtaken"`
	Result    run.Result `json:"result"`
}

// leaseTTL is how long a killed client keeps the next one waiting.
const leaseTTL = time.Second

// runClient does the errand in the file that the environment names.
func runClient() error {
	text, err := os.ReadFile(os.Getenv(clientVariable))
	if err != nil {
		return err
	}
	var e errand
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	api := run.Over(&machinesapi.Client{BaseURL: e.API, Token: e.Token}, e.Plan.App)
	result, err := run.Run(context.Background(), api, e.Plan.Plan, run.Options{Owner: owner, LeaseTTL: leaseTTL, Wait: patience, Release: e.Plan.Release, Events: func(news run.Event) {
		switch {
		case news.Step != e.Step || news.State != e.State:
		case e.Stops:
			fmt.Fprintln(os.Stdout, "suspended")
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // it returns when the process is continued
		default:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // there is no return from it
		}
	}})
	if err == nil || !e.Stops {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(told{err.Error(), errors.Is(err, run.ErrOvertaken), result})
}

// owner is who a client of its own says that it is.
const owner = "ana@laptop, release v2"

// killed carries a plan out in a process that is killed as a step begins, or has just ended.
func (h *house) killed(p deploy.Plan, step int, state run.State) {
	h.Helper()
	err := h.sent(errand{Plan: plan{p}, Step: step, State: state}).Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
		h.Fatalf("the client ended with %v, and was not killed at step %d, %s", err, step, state)
	}
}

// sent is a process, not yet started, that has an errand.
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

// killedAtOnce is how many clients are killed side by side: most of the time their leases have to end.
const killedAtOnce = 3

var all = flag.Bool("all", false, "kill clients as each step begins and when it has ended, and go on in one run and back in another; deploy every file")

// A client is killed at every step of every strategy: as the step begins, and another goes on, until
// everything is as the plan says; or when the step has just ended, and another goes back, until
// everything is as it was. With -all each step is all four.
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
						h.in(t).goesOn(strategy, step, k.state, k.version)
					})
				})
			}
		}
	}
	group.Wait()
}

// kill says when a client is killed, and to which version another then takes the app.
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

// goesOn kills a client at one event, and has another make all machines those of a version.
func (h *house) goesOn(strategy deploy.Strategy, step int, state run.State, version string) {
	app := bourse.AppName(fmt.Sprintf("%s-%d-%s-%s", strategy, step, state, version))
	was, next := wanted(h, app, "v1", strategy, 2), wanted(h, app, "v2", strategy, 2)
	first := h.app(app, 2)
	second := h.release(app)
	h.killed(h.plan(next, second), step, state)
	if r := h.newest(app); r.ID != second.ID || r.Status != release.Running || !bytes.Contains(r.Metadata, []byte("kept")) {
		h.Errorf("the newest release is %+v", r)
	}
	plan := func() deploy.Plan {
		if version == "v1" {
			return h.back(was, second, first)
		}
		return h.plan(next, second)
	}
	// What the killed one had asked for may be done after the plan was made: it is planned again.
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
			h.Errorf("Run: %v, %+v", err, result)
		}
	}
	list := h.machines(app)
	if len(list) != 2 {
		h.Errorf("there are %d machines", len(list))
	}
	for _, m := range list {
		if v := m.Config.Env[machineVariable]; v != version || m.State != bourse.StateStarted || m.Cordoned {
			h.Errorf("machine %s is %s, version %s, cordoned: %v; want %s", m.ID, m.State, v, m.Cordoned, version)
		}
	}
	if again := plan(); len(again.Steps) > 0 {
		h.Errorf("there is more to do: %+v", again.Steps)
	}
}

// newest returns an app's newest release.
func (h *house) newest(app bourse.AppName) release.Release {
	h.Helper()
	list, err := h.api.Releases(app).List(h.Context(), 1)
	if err != nil || len(list) != 1 {
		h.Fatalf("releases of %s: %v, %v", app, list, err)
	}
	return list[0]
}
