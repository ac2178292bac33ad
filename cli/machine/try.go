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
		Short: "Start a spare beside its twin, wait until it is ready, and stop it again",
		Long: `Start a spare for real, beside the machine that it stands by for: a spare that was
never started is a hope. Proxies send it no requests: it is cordoned before it
starts, and not any more once it has stopped. It is ready when it runs and its
checks pass. One that is not is shown with its last lines and what its checks say,
and put back as it was all the same.`,
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
			plan := trial(bourse.AppName(app), m, wait)
			carrier := plans.Carrier{
				Shell: s, API: run.Over(s.Client(), bourse.AppName(app)), Title: "test of spare " + m.Name, Options: run.Options{Owner: "test of spare " + m.Name},
				Done: "it became ready and is stopped again",
			}
			_, err = carrier.Carry(c.Context(), &plan)
			return err
		},
	}
	s.BindApp(c, &app)
	c.Flags().DurationVar(&wait, "wait", 5*time.Minute, "for it to become ready")
	return c
}

// trial is the plan that starts a spare and puts it back as it was. What fails is undone
// to the same end.
func trial(app bourse.AppName, m *machinesapi.Machine, wait time.Duration) deploy.Plan {
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
		add(deploy.CordonMachine{}, "no request is to reach it")
		add(deploy.AwaitProxies{}, "they send it no requests")
	}
	add(deploy.StartMachine{}, "it is tried")
	add(deploy.AwaitReady{Timeout: bourse.Duration(wait), Smoke: true}, "it runs and its checks pass")
	add(deploy.StopMachine{}, "it was stopped before")
	if !m.Cordoned {
		add(deploy.UncordonMachine{}, "it was not cordoned before")
	}
	return p
}
