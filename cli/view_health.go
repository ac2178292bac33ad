package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// viewHealthStep is how long --wait waits before it asks again.
const viewHealthStep = 500 * time.Millisecond

func (s *shell) viewHealth() *cobra.Command {
	var patience time.Duration
	c := &cobra.Command{
		Use:   "health",
		Short: "Show who is behind, who differs, and what was refused",
		Long: `Show every member's copy of the view: what it lacks and since when, what waits to
be taken in, and what it refused to take in (quarantine), with its origin.

Members are compared with one another:
  ok           has everything that anybody has
  catching up  changes are on their way, as they always are in a busy cluster
  behind       lacks changes for longer than they take
  differs      has every change, and yet other rows than most: a fault
  unreachable  does not answer

Exit status 5 when somebody is behind, differs or is unreachable; else 0, also
with rows in quarantine.`,
		Example: `  bourse view health
  bourse view health --wait 30s && echo everybody has everything
  bourse view health --json | jq '.members[] | {id, behind, lag_ms}'`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if patience < 0 {
				return bourse.Errorf(bourse.CodeInvalid, "--wait %s: use 0s or more", patience)
			}
			h, err := s.awaitViewHealth(c.Context(), patience)
			if err != nil {
				return err
			}
			if s.json {
				err = s.printJSON(h)
			} else {
				err = s.printViewHealth(&h)
			}
			if err == nil && !h.Agrees {
				return remoteExit(exits[bourse.CodeFailedPrecondition]) // what was printed says why
			}
			return err
		},
	}
	c.Flags().DurationVar(&patience, "wait", 0, "ask again for so `long` until every member is ok")
	_ = c.RegisterFlagCompletionFunc("wait", cobra.FixedCompletions([]string{"5s", "30s", "1m"}, cobra.ShellCompDirectiveNoFileComp)) // fails for an unknown flag only
	return c
}

// awaitViewHealth asks until every member is ok or patience is at its end, and
// gives the last answer.
func (s *shell) awaitViewHealth(ctx context.Context, patience time.Duration) (machinesapi.ViewHealth, error) {
	defer spin(s.Err, "asking the members")()
	end := s.Now().Add(patience)
	for {
		h, err := s.client().ViewHealth(ctx)
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
		case <-time.After(viewHealthStep):
		}
	}
}
