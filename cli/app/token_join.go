package app

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newTokenJoin(s *cli.Shell) *cobra.Command {
	var roles []string
	var in machinesapi.CreateJoinToken
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "join",
		Short: "Create a token that lets hosts join the cluster",
		Long: `Create a token that lets hosts join the cluster, and print it. Run "bourse join
TOKEN" on a host to make it a member. The token contains the address of this broker. It
works only while this broker runs, because the broker counts how often it was used. It
cannot be printed again.`,
		Example: `  bourse token join
  bourse token join --uses 10 --ttl 24h --region gru
  bourse token join --role worker,proxy`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, role := range roles {
				in.Roles = append(in.Roles, bourse.Role(role))
			}
			in.TTL = bourse.Duration(ttl)
			t, err := s.Client().JoinTokens().Create(c.Context(), in)
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(t)
			}
			if _, err := fmt.Fprintln(s.Out, cli.Clean(t.Token)); err != nil {
				return err
			}
			s.Note(fmt.Sprintf("join token %s for %s, valid for %s; it is not shown again. On the new host: bourse join TOKEN",
				cli.Clean(t.ID), cli.Count(t.Uses, "host"), cli.Age(t.ExpiresAt.Sub(t.CreatedAt))))
			return nil
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&roles, "role", []string{"worker"}, "`roles` that the host's servers may have: worker, broker and proxy, comma separated")
	flags.StringVar((*string)(&in.Region), "region", "", "`region` that the hosts must be in (default: any)")
	flags.IntVar(&in.Uses, "uses", 1, "`number` of hosts that can use the token")
	flags.DurationVar(&ttl, "ttl", time.Hour, "`time` for which the token is valid")
	c.AddCommand(newTokenJoinList(s), newTokenJoinRevoke(s))
	return c
}

func newTokenJoinList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List this broker's join tokens, and the hosts that have used them",
		Example: "  bourse token join list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := s.Client().JoinTokens().List(c.Context())
			if err != nil {
				return err
			}
			t := cli.NewTable("ID", "FOR", "REGION", "USED", "EXPIRES", "HOSTS").Narrow(5)
			return cli.PrintList(s, list, "no join tokens; create one: bourse token join", t, func(t *machinesapi.JoinToken) []string {
				hosts := make([]string, len(t.Hosts))
				for i, h := range t.Hosts {
					hosts[i] = string(h.Host)
				}
				expires := "expired"
				if left := t.ExpiresAt.Sub(s.Now()); left > 0 {
					expires = "in " + cli.Age(left)
				}
				return []string{
					t.ID, strings.Join(texts(t.Roles), ","), cmp.Or(string(t.Region), "any"),
					strconv.Itoa(len(t.Hosts)) + "/" + strconv.Itoa(t.Uses), expires, cmp.Or(strings.Join(hosts, " "), "-"),
				}
			})
		},
	}
}

func newTokenJoinRevoke(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID...",
		Short:   "Revoke join tokens",
		Long:    `Revoke join tokens. Hosts that have joined with them remain members.`,
		Example: "  bourse token join revoke 7QHXM2",
		Args:    cli.AtLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			return cli.Each(args, func(id string) error {
				if err := s.Client().JoinTokens().Revoke(c.Context(), id); err != nil {
					return err
				}
				if s.JSON {
					return s.PrintLine(map[string]string{"revoked": id})
				}
				_, err := fmt.Fprintf(s.Out, "%s  revoked\n", cli.Clean(id))
				return err
			})
		},
	}
}
