package cluster

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/machinesapi"
)

// NewMember returns the "member" commands.
func NewMember(s *cli.Shell) *cobra.Command {
	c := cli.Noun("member", "List and remove the servers of the cluster", newMemberList(s), newMemberRemove(s))
	c.Aliases = []string{"members"}
	return c
}

func newMemberList(s *cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the workers, brokers and proxies of the cluster",
		Long: `List the workers, brokers and proxies of the cluster, including those that are down
or stopped, and servers that were removed in the last year and have not joined again.

A broker or proxy that is not running is listed as down until it is removed or its
certificate expires. In a cluster without certificates, it is not listed.`,
		Example: "  bourse member list",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := s.Client().Members(c.Context())
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(machinesapi.MemberList{Members: list})
			}
			t := cli.NewTable("MEMBER", "ROLE", "REGION", "STATUS", "ADDRESS").Narrow(4)
			for i := range list {
				m := &list[i]
				address := cmp.Or(m.Address, "-")
				if nats.IsAddress(m.Address) {
					address = "on NATS"
				}
				t.Row(string(m.ID), cmp.Or(string(m.Role), "-"), cmp.Or(string(m.Region), "-"), memberStatus(s, m), address)
			}
			return t.Write(s.Out)
		},
	}
}

// memberStatus formats a server's status and, if the server is not running, the time when
// the status changed.
func memberStatus(s *cli.Shell, m *machinesapi.Member) string {
	status := string(m.Status)
	if m.Status == machinesapi.MemberDown {
		status = strings.ToUpper(status)
	}
	if m.Since.IsZero() {
		return status
	}
	return status + " since " + cli.Clock(m.Since, s.Now())
}

// completeMember completes the first argument with the names of members that were not
// removed.
func completeMember(s *cli.Shell) cobra.CompletionFunc {
	return cli.Complete(func(ctx context.Context) ([]cobra.Completion, error) {
		list, err := s.Client().Members(ctx)
		var out []cobra.Completion
		for i := range list {
			if m := &list[i]; m.Status != machinesapi.MemberRemoved {
				out = append(out, cobra.CompletionWithDesc(string(m.ID), string(m.Role)+", "+memberStatus(s, m)))
			}
		}
		return out, err
	})
}

// belongings describes the machines and volumes that are removed with a worker. It
// returns "" for other servers.
func belongings(m *machinesapi.Member) string {
	if m.Role != bourse.RoleWorker {
		return ""
	}
	if m.Status == machinesapi.MemberOK {
		return ", with all its machines and volumes"
	}
	return ", with " + cli.Count(m.Machines, "machine") + " and " + cli.Count(m.Volumes, "volume")
}
