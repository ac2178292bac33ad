package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newMemberRemove(s *cli.Shell) *cobra.Command {
	var yes, force bool
	c := &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Remove a server from the cluster, and lock it out",
		Long: `Remove a server that will not come back, or that you no longer trust, from the
cluster. The machines and volumes of a worker are no longer listed, and their names
can be used again. Nothing is destroyed on its host: if it was running, its machines
continue to run there.

The other servers refuse a removed server's certificate from then on, and close its
connections. To bring the server back, let its host join again with the same name and
data; a worker then still has its machines and volumes. In a cluster without
certificates, a removed server returns when it is started.

A server that is running or not listed (bourse member list) can only be removed with
--force.`,
		Example: `  bourse member remove gru-1
  bourse member remove gru-1-proxy
  bourse member remove gru-7 --force   # locks it out although it is running`,
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMember(s),
		RunE: func(c *cobra.Command, args []string) error {
			id := bourse.WorkerID(args[0])
			list, err := s.Client().Members(c.Context())
			if err != nil {
				return err
			}
			m := machinesapi.Member{ID: id, Status: machinesapi.MemberDown}
			i := slices.IndexFunc(list, func(m machinesapi.Member) bool { return m.ID == id })
			switch {
			case i >= 0:
				m = list[i]
			case !force:
				return cli.Hint(bourse.Errorf(bourse.CodeNotFound, "member %s not found", bourse.Quoted(string(id))), "bourse member list")
			}
			if m.Status == machinesapi.MemberOK && !force {
				return bourse.Errorf(bourse.CodeFailedPrecondition, "%s %s is running: stop it first; if servers have certificates, --force locks it out", m.Role, id)
			}
			question := fmt.Sprintf("remove %s %s, %s%s", cmp.Or(string(m.Role), "server"), id, memberStatus(s, &m), belongings(&m))
			if err := s.Confirm(c.Context(), yes, question); err != nil {
				return err
			}
			if m, err = s.Client().Operator().RemoveMember(c.Context(), id, force); err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(m)
			}
			_, err = fmt.Fprintf(s.Out, "%s  removed%s\n", m.ID, belongings(&m))
			return err
		},
	}
	cli.BindYes(c, &yes)
	c.Flags().BoolVarP(&force, "force", "f", false, "remove the server even if it is running or unknown")
	return c
}
