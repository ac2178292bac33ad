package machine

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/plans"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newTest(s *cli.Shell) *cobra.Command {
	var app string
	var wait time.Duration
	c := &cobra.Command{
		Use:   "test SPARE",
		Short: "Start a spare, wait until it is ready, and stop it again",
		Long: `Check that a spare works by starting it, while the machine for which it stands by
keeps running. Proxies send no requests to the spare, because it is cordoned during
the test. The test succeeds once the spare runs and its health checks pass. If it
fails, the spare's last output and check results are shown. In both cases, the spare
is stopped again.`,
		Example:           "  bourse spare test -a shop quiet-river-1234",
		Args:              cli.Exactly(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			list, err := machines(c.Context(), s, app)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(list, func(m machinesapi.Machine) bool { return string(m.ID) == args[0] || m.Name == args[0] })
			if i < 0 {
				return cli.Hint(bourse.Errorf(bourse.CodeNotFound, "app %s has no machine %s", app, bourse.Quoted(args[0])), "bourse spare list -a "+app)
			}
			m := &list[i]
			if m.State != bourse.StateStopped && m.State != bourse.StateCreated {
				err := bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s: only a stopped machine can be tested", m.ID, m.State)
				return cli.Hint(err, "bourse spare list -a "+app)
			}
			plan := testPlan(bourse.AppName(app), m, wait)
			carrier := plans.Executor{
				Shell: s, API: run.NewAPI(s.Client(), bourse.AppName(app)), Title: "test of spare " + m.Name, Options: run.Options{Owner: "test of spare " + m.Name},
				Done: "the spare became ready and was stopped again",
			}
			_, err = carrier.Execute(c.Context(), &plan)
			return err
		},
	}
	s.BindApp(c, &app)
	c.Flags().DurationVar(&wait, "wait", 5*time.Minute, "maximum time to wait for the spare to become ready")
	return c
}

// testPlan returns a plan that tests a spare: it starts the spare, waits until it is ready, and
// restores its previous state. If a step fails, the plan's undo steps also restore that state.
func testPlan(app bourse.AppName, m *machinesapi.Machine, wait time.Duration) deploy.Plan {
	p := deploy.Plan{App: app, What: "test of a spare"}
	group := ""
	if config := m.Known(); config != nil {
		group = config.Metadata[deploy.KeyGroup]
	}
	add := func(do deploy.Action, why string) {
		s := deploy.Step{ID: len(p.Steps), Do: do, Group: group, Region: m.Region, Name: m.Name, Why: why}
		if !deploy.Is[deploy.AwaitProxies](do) {
			s.Machine = m.ID
		}
		if s.ID > 0 {
			s.After = []int{s.ID - 1}
		}
		p.Steps = append(p.Steps, s)
	}
	if !m.Cordoned {
		add(deploy.CordonMachine{}, "no requests may be sent to it")
		add(deploy.AwaitProxies{}, "they must stop sending it requests")
	}
	add(deploy.StartMachine{}, "it is tested")
	add(deploy.AwaitReady{Timeout: bourse.Duration(wait), Smoke: true}, "it runs and its checks pass")
	add(deploy.StopMachine{}, "it was stopped before")
	if !m.Cordoned {
		add(deploy.UncordonMachine{}, "it was not cordoned before")
	}
	return p
}
