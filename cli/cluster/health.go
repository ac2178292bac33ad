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

// healthStep is how long --wait waits before it asks again.
const healthStep = 500 * time.Millisecond

func newHealth(s *cli.Shell) *cobra.Command {
	var patience time.Duration
	c := &cobra.Command{
		Use:   "health",
		Short: "Show who is behind, who differs, and what was refused",
		Long: `Show every member's copy of the view: what it lacks and since when, what waits to
be taken in, and what it refused to take in (quarantine), with its origin.

Members are compared with one another:
  ok           has everything that any member has
  catching up  changes are on their way, as they always are in a busy cluster
  behind       lacks changes for longer than they take
  differs      has every change, and yet other rows than most: a fault
  unreachable  does not answer
  down         should be a member and is gone: a worker that was killed or cut off

Exit status 5 when a member is behind, differs, is unreachable or down; else 0,
also with rows in quarantine.`,
		Example: `  bourse view health
  bourse view health --wait 30s && echo every member has everything
  bourse view health --json | jq '.members[] | {id, behind, lag_ms}'`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if patience < 0 {
				return bourse.Errorf(bourse.CodeInvalid, "--wait %s: use 0s or more", patience)
			}
			h, err := awaitHealth(c.Context(), s, patience)
			if err != nil {
				return err
			}
			if s.JSON {
				err = s.PrintJSON(h)
			} else {
				err = printHealth(s, &h)
			}
			if err == nil && !h.Agrees {
				return cli.ExitStatus(bourse.CodeFailedPrecondition.ExitStatus()) // what was printed has the reason
			}
			return err
		},
	}
	c.Flags().DurationVar(&patience, "wait", 0, "ask again for so `long` until every member is ok")
	_ = c.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{"5s", "30s", "1m"}, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	return c
}

// awaitHealth asks until every member is ok or patience ends, and
// returns the last answer.
func awaitHealth(ctx context.Context, s *cli.Shell, patience time.Duration) (machinesapi.ViewHealth, error) {
	defer cli.Spin(s.Err, "asking the members")()
	end := s.Now().Add(patience)
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
		case <-time.After(healthStep):
		}
	}
}
