package app

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newRevoke(s *cli.Shell) *cobra.Command {
	var made bool
	c := &cobra.Command{
		Use:     "revoke TOKEN...",
		Aliases: []string{"destroy", "rm"},
		Short:   "Revoke tokens",
		Long: `Revoke tokens, given by id or name. This broker refuses them immediately, other
brokers within a second. Tokens that were created with them remain valid unless you
pass --made, which you should do after a theft.`,
		Example: `  bourse token revoke ci
  bourse token revoke 5be0cd19137e2179 --made`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeToken(s),
		RunE: func(c *cobra.Command, args []string) error {
			return cli.Each(args, func(word string) error { return revoke(c.Context(), s, word, made) })
		},
	}
	c.Flags().BoolVar(&made, "made", false, "also revoke all tokens that were created with them")
	return c
}

func revoke(ctx context.Context, s *cli.Shell, word string, made bool) error {
	list, err := api(s).List(ctx)
	if err != nil {
		return err
	}
	id, err := findToken(list, word, s.Now())
	if err != nil {
		return err
	}
	reply, err := api(s).Revoke(ctx, id, made)
	if bourse.CodeOf(err) == bourse.CodeTimeout {
		return cli.Hint(err, "the same command again, which is safe to repeat")
	}
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintLine(reply)
	}
	for _, gone := range reply.Revoked {
		if _, err := fmt.Fprintf(s.Out, "%s  revoked\n", cli.Clean(gone)); err != nil {
			return err
		}
	}
	if len(reply.Revoked) == 0 {
		s.Note("token " + id + " was already revoked")
	}
	if n := len(reply.StillValid); n > 0 {
		s.Note(fmt.Sprintf("%d tokens that were created with it are still valid; to revoke them too: bourse token revoke %s --made", n, id))
	}
	return nil
}
