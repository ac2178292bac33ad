package plans

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

// moving returns a plan that moves an app's machines with the given names. A machine named
// db has a volume.
func moving(t *testing.T, app bourse.AppName, names ...string) *deploy.Plan {
	t.Helper()
	state := deploy.State{App: app}
	var ids []bourse.MachineID
	for _, name := range names {
		var m machinesapi.Machine
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // Write never fails
		m.ID, m.Name, m.App = bourse.MachineID(fmt.Sprintf("148e21%08x", h.Sum32())), name, app
		m.State, m.Region, m.InstanceID, m.Worker, m.HostStatus = bourse.StateStarted, "gru", "01", "gru-1", machinesapi.HostOK
		m.Config = &bourse.Config{Image: "host", Init: bourse.Init{Exec: []string{"serve"}}, Metadata: map[string]string{deploy.KeyGroup: "web", deploy.KeyPlatform: deploy.Platform}}
		m.Config.Services = json.RawMessage(`[{"protocol":"tcp","internal_port":8080,"ports":[{"port":80}]}]`)
		if name == "db" {
			m.Config.Mounts = []bourse.Mount{{Volume: "vol_0000000000000001", Name: "data", SizeGB: 1, Path: "/data"}}
			m.Config.Metadata[deploy.KeyGroup] = "db"
		}
		state.Machines = append(state.Machines, m)
		ids = append(ids, m.ID)
	}
	p := deploy.Move(state, ids, deploy.MoveOptions{Concurrency: 8, Why: "worker gru-1 is drained"})
	return &p
}

// eventsOf returns the events of a plan, up to the first step for which until returns true. Each step takes a second.
func eventsOf(p *deploy.Plan, until func(*deploy.Step) bool) []run.Event {
	var out []run.Event
	for i := range p.Steps {
		s := &p.Steps[i]
		machine := s.Machine
		if of := s.MadeBy; of != nil || deploy.Is[deploy.MakeMachine](s.Do) {
			if of == nil {
				of = &i
			}
			machine = bourse.MachineID(fmt.Sprintf("22e0000000%04d", *of))
		}
		e := run.Event{Step: i, State: run.Running, At: clitest.Now.Add(time.Duration(i) * time.Second), Machine: machine}
		out = append(out, e)
		if until(s) {
			if deploy.Is[deploy.AwaitReady](s.Do) {
				out[len(out)-1].Text = "check http: connection refused"
			}
			return out
		}
		e.State, e.At = run.Done, e.At.Add(time.Second)
		out = append(out, e)
	}
	return out
}

func done(*deploy.Step) bool { return false }

// TestReplacementAndMachineAreOneSubject checks that a machine and its replacement form one subject, which includes the
// volume and the wait for proxies.
func TestReplacementAndMachineAreOneSubject(t *testing.T) {
	t.Parallel()
	p := moving(t, "shop", "quiet-river-1234", "db")
	list, of := subjects(p)
	if len(list) != 2 || len(of) != len(p.Steps) {
		t.Errorf("%d subjects, want 2: %+v", len(list), list)
	}
	var words []string
	b := newPlanProgress("", p)
	for _, e := range eventsOf(p, done) {
		b.apply(e)
	}
	for i := range b.subjects {
		st := b.status(&b.subjects[i])
		words = append(words, b.subjects[i].name+" "+st.word+" "+st.text)
	}
	slices.Sort(words)
	if len(words) != 2 || !strings.HasPrefix(words[0], "db moved by 22e") || !strings.HasPrefix(words[1], "quiet-river-1234 moved by 22e") {
		t.Errorf("%q", words)
	}
}

// drainScreen shows a drain of two apps. The machine of the first app is moved. One machine of the second app cannot be
// moved, so the moves of the others are replanned.
func drainScreen(t *testing.T, s *cli.Shell) {
	t.Helper()
	show := ShowAll(s, "drain of worker gru-1", 4)
	first := moving(t, "blog", "wild-wood-9")
	event := show.Add(first)
	for _, e := range eventsOf(first, done) {
		event(e)
	}
	second := moving(t, "shop", "brave-hill-77", "quiet-river-1234")
	event = show.Add(second)
	ready := slices.IndexFunc(second.Steps, func(s deploy.Step) bool { return deploy.Is[deploy.AwaitReady](s.Do) })
	for _, e := range eventsOf(second, func(s *deploy.Step) bool { return s.ID == ready }) {
		event(e)
	}
	failed := run.Event{Step: ready, State: run.Failed, At: clitest.Now.Add(20 * time.Second), Text: "check http did not pass within 20s: connection refused"}
	event(failed)
	event(run.Event{Step: run.WholeRun, State: run.Undoing, At: failed.At})
	event(run.Event{Step: ready - 1, State: run.Undoing, At: failed.At})
	event(run.Event{Step: ready - 1, State: run.Undone, At: failed.At.Add(time.Second)})
	third := moving(t, "shop", "quiet-river-1234", "db")
	event = show.Add(third)
	for _, e := range eventsOf(third, func(s *deploy.Step) bool { return deploy.Is[deploy.AwaitReady](s.Do) }) {
		e.At = e.At.Add(22 * time.Second)
		event(e)
	}
	show.End()
}

// TestDrainScreens checks the progress of several plans on one screen.
func TestDrainScreens(t *testing.T) {
	t.Parallel()
	for _, width := range clitest.Widths {
		got := clitest.Drawn(t, width, func(s *cli.Shell) error {
			s.Now = func() time.Time { return clitest.Now.Add(30 * time.Second) }
			drainScreen(t, s)
			return nil
		})
		clitest.Screen(t, "screen_drain", width, got)
	}
	clitest.Golden(t, "plain_drain.wide", clitest.On(t, 0, func(s *cli.Shell) error {
		drainScreen(t, s)
		return nil
	}))
}

// TestPlanOfManyMachines checks that a printed plan lists only the first machines and the
// number of the others, and that its JSON contains all of them.
func TestPlanOfManyMachines(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("machine-%04d", i))
	}
	p := moving(t, "shop", names...)
	for i := range 25 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("machine wild-wood-%d is not looked after by deploys: it stays as it is", i))
	}
	screens(t, "plan_many", func(s *cli.Shell) error { return Print(s, p, nil) })
	raw, err := json.Marshal(p)
	if err != nil || strings.Count(string(raw), `"name":"machine-`) < 1000 || !strings.Contains(string(raw), "wild-wood-24") {
		t.Errorf("%v: the JSON is incomplete", err)
	}
}
