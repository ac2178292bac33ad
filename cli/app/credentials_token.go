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
		Short: "Make a token: a line for the file of tokens that brokers have",
		Long: `Make a token of an organization, or of one of its apps, and print it as a line
for the file tokens in the --credentials of brokers. They read it again by
themselves. In place of an organization "*" is everything, the workers too, and
"role:scraper" is metrics only.`,
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

// checkScope refuses what brokers would not read: an organization and perhaps
// an app, or "*".
func checkScope(args []string) error {
	switch org := args[0]; {
	case (org == "*" || org == admission.ScraperScope) && len(args) == 1:
		return nil
	case org == "*":
		return bourse.Errorf(bourse.CodeInvalid, "a token for everything has no app")
	case org == admission.ScraperScope:
		return bourse.Errorf(bourse.CodeInvalid, "a scraper's token has no app")
	case bourse.AppName(org).Validate() != nil: // the same alphabet
		return bourse.Errorf(bourse.CodeInvalid, "%s is no organization: use a-z, 0-9 and \"-\", role:scraper for metrics, or '*' for everything", bourse.Quoted(org))
	case len(args) == 2:
		return bourse.AppName(args[1]).Validate()
	}
	return nil
}
