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
		Short: "Make a token, and print it this once",
		Long: `Make a token for a client or a person, and print it. No one can print it again:
the servers keep a digest. It is good for no more than the token that makes it: for
an organization, for apps of one, or for machines of an app; read-only if it only
has to look; and for a time.

Every broker takes it within a second, and refuses it within a second once it is
revoked.`,
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
				return bourse.Errorf(bourse.CodeInvalid, "--expiry %s: use 1s and more", expiry)
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
			s.Note(fmt.Sprintf("token %s, %s: for %s (%s); it is not shown again. Revoke it: bourse token revoke %s",
				cli.Clean(t.ID), cli.Clean(t.Name), cli.Clean(goodFor(&t)), standing(&t, s.Now()), cli.Clean(t.ID)))
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVarP(&org, "org", "o", "", "all of this `organization`; '*' is everything, the workers too")
	flags.StringSliceVarP(&apps, "app", "a", nil, "only this `app`; may be repeated")
	flags.StringSliceVar(&machines, "machine", nil, "only the machine with this `id`, of one app; may be repeated")
	flags.BoolVar(&readOnly, "read-only", false, "it reads, follows logs and waits, and changes nothing")
	flags.DurationVar(&expiry, "expiry", 0, "good for so `long`, as 24h (default: until it is revoked)")
	cli.CompleteFlag(c, "app", s.Apps)
	return c
}

// hintToken adds a hint to an error from the API. A lost reply may belong to a token that
// was created.
func hintToken(err error) error {
	if bourse.CodeOf(err) == bourse.CodeTimeout {
		return cli.Hint(err, "bourse token list")
	}
	return err
}
