package app

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

func newToken(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:   "token ORG [APP]",
		Short: "Create a token for the brokers' token file",
		Long: `Create a token for an organization, or for one of its apps, and print it as a line
for the brokers' token file (tokens in --credentials). Brokers notice changes to that
file. With "*" instead of an organization, the token permits everything, including
access to workers. With "role:scraper", it only permits reading metrics.`,
		Example: `  bourse credentials token acme web >> tokens
  bourse credentials token role:scraper >> tokens
  bourse credentials token '*' >> tokens`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return cli.UsageError(c)
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkScope(args); err != nil {
				return err
			}
			token := random(16)
			if s.JSON {
				return s.PrintJSON(struct {
					Token string   `json:"token"`
					For   []string `json:"for"`
				}{token, args})
			}
			_, err := fmt.Fprintln(s.Out, token, strings.Join(args, " "))
			return err
		},
	}
}

// checkScope returns an error if args are not a token scope that brokers accept. A
// scope is "*", the scraper scope, or an organization, optionally followed by one of
// its apps.
func checkScope(args []string) error {
	switch org := args[0]; {
	case (org == "*" || org == admission.ScraperScope) && len(args) == 1:
		return nil
	case org == "*":
		return bourse.Errorf(bourse.CodeInvalid, "an unrestricted token cannot be limited to an app")
	case org == admission.ScraperScope:
		return bourse.Errorf(bourse.CodeInvalid, "a scraper's token cannot be limited to an app")
	case bourse.AppName(org).Validate() != nil: // organization names use the same alphabet as app names
		return bourse.Errorf(bourse.CodeInvalid, "invalid organization %s: use a-z, 0-9 and \"-\", role:scraper for metrics, or '*' for everything", bourse.Quoted(org))
	case len(args) == 2:
		return bourse.AppName(args[1]).Validate()
	}
	return nil
}
