package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// healthInterval is the polling interval of --wait.
const healthInterval = 500 * time.Millisecond

func newHealth(s *cli.Shell) *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "health",
		Short: "Compare the members' copies of the view",
		Long: `Show the state of every member's copy of the view: how many changes it lacks and
for how long, how many are queued, and which rows it has refused (quarantine) and
from whom.

The members' copies are compared with each other:
  ok           has all changes that any member has
  catching up  changes are on their way, which is normal in a busy cluster
  behind       has lacked changes for longer than they usually take
  differs      has all changes, but different rows than most members: a fault
  unreachable  does not answer
  down         a member that was killed or cut off

The exit status is 5 if a member is behind, differs, is unreachable or down, and
otherwise 0, even if rows are in quarantine.`,
		Example: `  bourse view health
  bourse view health --wait 30s && echo all members are ok
  bourse view health --json | jq '.members[] | {id, behind, lag_ms}'`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if timeout < 0 {
				return bourse.Errorf(bourse.CodeInvalid, "--wait %s: use 0s or more", timeout)
			}
			h, err := awaitHealth(c.Context(), s, timeout)
			if err != nil {
				return err
			}
			if s.JSON {
				err = s.PrintJSON(h)
			} else {
				err = printHealth(s, &h)
			}
			if err == nil && !h.Agrees {
				return cli.ExitStatus(bourse.CodeFailedPrecondition.ExitStatus()) // the printed report already explains why
			}
			return err
		},
	}
	c.Flags().DurationVar(&timeout, "wait", 0, "maximum `time` to wait until every member is ok")
	_ = c.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{"5s", "30s", "1m"}, cobra.ShellCompDirectiveNoFileComp)) // fails only if the flag does not exist
	return c
}

// awaitHealth polls until every member is ok or timeout has passed. It returns the last reply.
func awaitHealth(ctx context.Context, s *cli.Shell, timeout time.Duration) (machinesapi.ViewHealth, error) {
	defer cli.Spin(s.Err, "asking the members")()
	end := s.Now().Add(timeout)
	for {
		h, err := s.Client().ViewHealth(ctx)
		if err != nil {
			return h, err
		}
		settled := !slices.ContainsFunc(h.Members, func(m machinesapi.MemberHealth) bool { return m.State != machinesapi.ViewOK })
		if settled || !s.Now().Before(end) {
			return h, nil
		}
		select {
		case <-ctx.Done():
			return h, context.Cause(ctx)
		case <-time.After(healthInterval):
		}
	}
}
