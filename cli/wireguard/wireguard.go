// Package wireguard implements the "bourse wireguard" commands, which connect laptops to private networks.
package wireguard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// New returns the "wireguard" commands.
func New(s *cli.Shell) *cobra.Command {
	return cli.Noun("wireguard", "Connect your laptop to private networks", newCreate(s), newList(s), newRemove(s))
}

func api(s *cli.Shell) machinesapi.WireGuard {
	return s.Client().WireGuard()
}

// networkOf returns the name of a peer's private network, with its organization.
func networkOf(p *machinesapi.WireGuardPeer) string { return p.Org + "/" + p.Network }

func newList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the laptops that you may remove",
		Long:    `List the laptops that you may remove, except those that have been cut off.`,
		Example: "  bourse wireguard list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := api(s).List(c.Context())
			if err != nil {
				return err
			}
			none := "no laptops; connect one with: bourse wireguard create laptop --app shop > bourse.conf"
			t := cli.NewTable("ID", "NAME", "NETWORK", "APP", "ENTRY", "ADDRESS", "EXPIRES IN", "CREATED BY").Narrow(2, 1).Drop(7, 3, 5)
			return cli.PrintList(s, list, none, t, func(p *machinesapi.WireGuardPeer) []string {
				return []string{
					p.ID, p.Name, networkOf(p), cmp.Or(string(p.App), "-"), string(p.Worker), p.Address.String(), cli.Age(p.ExpiresAt.Sub(s.Now())), cmp.Or(p.MadeBy, "-"),
				}
			})
		},
	}
}

func newRemove(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME...",
		Aliases: []string{"rm", "destroy", "revoke"},
		Short:   "Cut off laptops",
		Long: `Cut off laptops, given by name or id, within seconds. A worker that is cut off from
the brokers removes a laptop once it reaches them again.`,
		Example:           "  bourse wireguard remove laptop",
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completePeer(s),
		RunE: func(c *cobra.Command, args []string) error {
			return cli.Each(args, func(word string) error { return remove(c.Context(), s, word) })
		},
	}
}

func remove(ctx context.Context, s *cli.Shell, word string) error {
	list, err := api(s).List(ctx)
	if err != nil {
		return err
	}
	id, err := find(list, word)
	if err != nil {
		return err
	}
	err = api(s).Remove(ctx, id)
	if bourse.CodeOf(err) == bourse.CodeTimeout {
		return cli.Hint(err, "the same command again, which is safe to repeat")
	}
	if err != nil {
		return err
	}
	if s.JSON {
		return s.PrintLine(struct {
			Removed string `json:"removed"`
		}{id})
	}
	_, err = fmt.Fprintf(s.Out, "%s  removed\n", cli.Clean(id))
	return err
}

// find returns the ID of the laptop with the given ID, or of the only laptop with the given name. Errors: not_found;
// invalid if several laptops have the name.
func find(list []machinesapi.WireGuardPeer, word string) (string, error) {
	var ids []string
	for i := range list {
		if list[i].ID == word {
			return word, nil
		}
		if list[i].Name == word {
			ids = append(ids, list[i].ID)
		}
	}
	switch len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", cli.Hint(bourse.Errorf(bourse.CodeNotFound, "no laptop has the name or id %s", bourse.Quoted(word)), "bourse wireguard list")
	}
	return "", bourse.Errorf(bourse.CodeInvalid, "%d laptops are named %s: use an id, %s", len(ids), bourse.Quoted(word), strings.Join(ids, " or "))
}

// completePeer completes arguments with the IDs of laptops.
func completePeer(s *cli.Shell) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, err := api(s).List(ctx)
		out := make([]cobra.Completion, len(list))
		for i := range list {
			out[i] = cobra.CompletionWithDesc(list[i].ID, cli.Clean(list[i].Name)+": "+cli.Clean(networkOf(&list[i])))
		}
		slices.Sort(out)
		return out, err
	})
}
