package machine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/cli/plans"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

// spareFixture returns an app's machines: two started machines, a standby for both that is
// on the same worker as the second one, and a stopped machine that waits for requests.
func spareFixture() []machinesapi.Machine {
	machine := func(id bourse.MachineID, name, group string, worker bourse.WorkerID, state bourse.State, twins ...bourse.MachineID) machinesapi.Machine {
		m := machinesapi.FromMachine(&bourse.Machine{ID: id, App: "shop", Name: name, Region: "gru", State: state, Worker: worker})
		m.Config = &bourse.Config{Image: "host", Metadata: map[string]string{deploy.KeyGroup: group}}
		m.Config.Standbys = twins
		return m
	}
	return []machinesapi.Machine{
		machine("148e21ea1d5301", "quiet-river-1234", "worker", "gru-1", bourse.StateStarted),
		machine("148e21ea1d5302", "brave-hill-77", "worker", "gru-2", bourse.StateStarted),
		machine("148e21ea1d5303", "cold-lake-5", "worker", "gru-2", bourse.StateStopped, "148e21ea1d5301", "148e21ea1d5302", "148e21ea1d53ff"),
		machine("148e21ea1d5304", "wild-wood-9", "web", "gru-3", bourse.StateStopped),
	}
}

func TestSpareList(t *testing.T) {
	line.Screens(t, "spare_list", clitest.Paths(map[string]any{"/v1/apps/shop/machines": spareFixture()}), "spare", "list", "-a", "shop")
}

// TestSpareTestScreens checks what a terminal shows during a successful and a failing test
// of a spare.
func TestSpareTestScreens(t *testing.T) {
	m := spareFixture()[2]
	p := testPlan("shop", &m, time.Minute)
	show := func(s *cli.Shell, fails bool) {
		var passed atomic.Int64 // each redraw reads the clock
		s.Now = func() time.Time { return clitest.Now.Add(time.Duration(passed.Load())) }
		screen := plans.Show(s, "test of spare "+m.Name, &p)
		for i := range p.Steps {
			e := run.Event{Step: i, State: run.Running, At: s.Now(), Machine: p.Steps[i].Machine}
			screen.Event(e)
			passed.Add(int64(time.Second))
			e.State, e.At = run.Done, s.Now()
			if fails && deploy.Is[deploy.AwaitReady](p.Steps[i].Do) {
				e.State, e.Text = run.Failed, "it exited with code 1 within 2s of its start"
				e.Evidence = &run.Evidence{Machine: m.ID, State: bourse.StateFailed, Lines: []machinesapi.LogLine{{Text: "no route to database"}}}
				screen.Event(e)
				break
			}
			screen.Event(e)
		}
		screen.End()
	}
	for _, width := range clitest.Widths {
		clitest.Screen(t, "spare_test", width, clitest.Drawn(t, width, trying(show, false)))
		clitest.Screen(t, "spare_test_failed", width, clitest.Drawn(t, width, trying(show, true)))
	}
	clitest.Golden(t, "spare_test_plain.wide", clitest.On(t, 0, trying(show, false)))
}

func trying(show func(*cli.Shell, bool), fails bool) func(*cli.Shell) error {
	return func(s *cli.Shell) error {
		show(s, fails)
		return nil
	}
}
