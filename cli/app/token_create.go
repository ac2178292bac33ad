package app

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newTokenCreate(s *cli.Shell) *cobra.Command {
	var org string
	var apps, machines []string
	var readOnly bool
	var expiry time.Duration
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token and print it",
		Long: `Create a token for a client or a person, and print it. It cannot be printed again,
because servers only store a digest. You can limit the token to an organization, to
some of its apps, or to machines of an app, make it read-only, and let it expire. It
never permits more than the token that was used to create it.

Every broker accepts the token within a second, and rejects it within a second of
being revoked.`,
		Example: `  bourse token create ci --app shop --expiry 720h
  bourse token create dashboard --org acme --read-only
  bourse token create job-7 --app shop --machine 148e21ea1d5389 --expiry 1h
  bourse token create ops --org '*'`,
		Args: cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			in := machinesapi.CreateToken{Name: args[0], Org: org, ReadOnly: readOnly, Expiry: bourse.Duration(expiry)}
			for _, app := range apps {
				in.Apps = append(in.Apps, bourse.AppName(app))
			}
			for _, id := range machines {
				in.Machines = append(in.Machines, bourse.MachineID(id))
			}
			if expiry < 0 {
				return bourse.Errorf(bourse.CodeInvalid, "--expiry %s: use 1s or more", expiry)
			}
			t, err := api(s).Create(c.Context(), in)
			if err != nil {
				return hintToken(err)
			}
			if s.JSON {
				return s.PrintJSON(t)
			}
			if _, err := fmt.Fprintln(s.Out, cli.Clean(t.Token)); err != nil {
				return err
			}
			s.Note(fmt.Sprintf("token %s, %s: for %s (%s); it is not shown again. To revoke it: bourse token revoke %s",
				cli.Clean(t.ID), cli.Clean(t.Name), cli.Clean(permissions(&t)), validity(&t, s.Now()), cli.Clean(t.ID)))
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVarP(&org, "org", "o", "", "`organization` to which the token gives access; '*' permits everything, including workers")
	flags.StringSliceVarP(&apps, "app", "a", nil, "limit the token to this `app`; may be repeated")
	flags.StringSliceVar(&machines, "machine", nil, "limit the token to the machine with this `id`, with a single --app; may be repeated")
	flags.BoolVar(&readOnly, "read-only", false, "permit only reading, following logs and waiting")
	flags.DurationVar(&expiry, "expiry", 0, "`time` until the token expires, such as 24h (default: never)")
	cli.CompleteFlag(c, "app", s.Apps)
	return c
}

// hintToken adds a hint to a timeout error, because the token may have been created
// anyway.
func hintToken(err error) error {
	if bourse.CodeOf(err) == bourse.CodeTimeout {
		return cli.Hint(err, "bourse token list")
	}
	return err
}
