package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

// errand is what a client of its own is to do: carry a plan out, and kill itself at
// one event.
type errand struct {
	API   string      `json:"api"`
	Token string      `json:"token"`
	Plan  deploy.Plan `json:"plan"`
	Step  int         `json:"step"`
	State run.State   `json:"state"`
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
	_, err = run.Run(context.Background(), api, e.Plan, run.Options{Owner: "who is killed", LeaseTTL: leaseTTL, Wait: patience, Events: func(news run.Event) {
		if news.Step == e.Step && news.State == e.State {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // there is no return from it
		}
	}})
	return err
}

// killed carries a plan out in a process that is killed as a step begins, or has just ended.
func (h *house) killed(plan deploy.Plan, step int, state run.State) {
	h.Helper()
	token, err := os.ReadFile(h.broker.TokenFile)
	if err != nil {
		h.Fatal(err)
	}
	text, err := json.Marshal(errand{"http://" + h.broker.API, strings.TrimSpace(string(token)), plan, step, state})
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
	err = c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Sys().(syscall.WaitStatus).Signaled() {
		h.Fatalf("the client ended with %v, and was not killed at step %d, %s", err, step, state)
	}
}

// killedAtOnce is how many clients are killed side by side: most of the time their leases have to end.
const killedAtOnce = 6

// A client is killed as a step begins, at every step of every strategy, and another
// goes on: everything is as the plan says. Or it is killed when the step has just
// ended, and another goes back: everything is as it was.
func TestKilledClients(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	slots := make(chan struct{}, killedAtOnce)
	var group sync.WaitGroup
	for name, plan := range map[string]func(h *house, app bourse.AppName, version string) deploy.Plan{
		"rolling": (*house).plainRolling, "bluegreen": (*house).bluegreen,
	} {
		for step := range map[string]int{"rolling": 4, "bluegreen": 14}[name] {
			for state, version := range map[run.State]string{run.Running: "v2", run.Done: "v1"} {
				group.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					app := bourse.AppName(fmt.Sprintf("%s-%d-%s", name, step, state))
					t.Run(string(app), func(t *testing.T) { h.in(t).goesOn(app, plan, step, state, version) })
				})
			}
		}
	}
	group.Wait()
}

// goesOn kills a client at one event, and has another make all machines those of a version.
func (h *house) goesOn(app bourse.AppName, plan func(h *house, app bourse.AppName, version string) deploy.Plan, step int, state run.State, version string) {
	h.app(app, 2)
	h.killed(plan(h, app, "v2"), step, state)
	result, err := h.run(h.towards(app, version, 2), run.Options{LeaseTTL: leaseTTL, Events: func(e run.Event) {
		h.Logf("%s %d %s %s %s", e.At.Format(time.StampMilli), e.Step, e.State, e.Machine, e.Text)
	}})
	if err != nil {
		h.Errorf("Run: %v, %+v", err, result)
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
}

// towards plans for so many machines of a version: those that are there serve, others are made, and
// those of another version go.
func (h *house) towards(app bourse.AppName, version string, count int) deploy.Plan {
	h.Helper()
	b := &builder{deploy.Plan{App: app}}
	var ready []int
	var retire []machinesapi.Machine
	list := h.machines(app)
	for _, m := range list {
		if m.Config.Env[machineVariable] != version {
			retire = append(retire, m)
			continue
		}
		count--
		start := b.add(deploy.Step{Do: deploy.StartMachine, Machine: m.ID})
		on := b.add(deploy.Step{Do: deploy.AwaitReady, Machine: m.ID}, start)
		ready = append(ready, b.add(deploy.Step{Do: deploy.UncordonMachine, Machine: m.ID}, on))
	}
	for range max(0, count) {
		m := b.add(deploy.Step{Do: deploy.MakeMachine, In: "gru", Config: to(list[0].Config, version)})
		ready = append(ready, b.add(deploy.Step{Do: deploy.AwaitReady, Of: &m}, m))
	}
	know := b.add(deploy.Step{Do: deploy.AwaitProxies}, ready...)
	for _, m := range retire {
		cordon := b.add(deploy.Step{Do: deploy.CordonMachine, Machine: m.ID}, know)
		stop := b.add(deploy.Step{Do: deploy.StopMachine, Machine: m.ID}, b.add(deploy.Step{Do: deploy.AwaitProxies}, cordon))
		b.add(deploy.Step{Do: deploy.DestroyMachine, Machine: m.ID}, stop)
	}
	return b.Plan
}
