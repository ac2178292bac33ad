package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// listOrg prints the machines of an organization.
func (f *listFlags) listOrg(ctx context.Context, s *cli.Shell, c *cobra.Command) error {
	for _, other := range []string{"app", "all-apps", "worker", "metadata"} {
		if c.Flags().Changed(other) {
			return bourse.Errorf(bourse.CodeInvalid, "--org and --%s are mutually exclusive", other)
		}
	}
	want := machinesapi.ListOrgMachines{Deleted: f.all, Region: bourse.Region(f.region)}
	for _, state := range f.states {
		want.States = append(want.States, bourse.State(state))
	}
	stop := cli.Spin(s.Err, "asking the workers")
	list, silent, err := orgMachines(ctx, s, f.org, want)
	stop()
	if bourse.CodeOf(err) == bourse.CodeForbidden {
		return cli.Hint(err, "bourse app list")
	}
	if err != nil {
		return err
	}
	s.WarnMissing(silent, "machines")
	if len(list) == 0 {
		if err := s.CheckFilters(ctx, want.Region, ""); err != nil {
			return err
		}
	}
	if f.quiet && !s.JSON {
		for i := range list {
			fmt.Fprintln(s.Out, cli.Clean(string(list[i].ID)))
		}
		return nil
	}
	t := cli.NewTable("ID", "NAME", "APP", "STATE", "REGION", "IMAGE", "SIZE", "AGE").Numbers(7).Narrow(5, 2, 1).Drop(6, 5, 7, 4).Paint(3, stateTone)
	return cli.PrintList(s, list, "no machines in organization "+cli.Clean(f.org), t, func(m *machinesapi.OrgMachine) []string {
		return []string{
			string(m.ID), m.Name, string(m.App), string(m.State), string(m.Region), m.Config.Image, cli.Guest(&m.Config.Guest), ageOf(s, m.CreatedAt),
		}
	})
}

// orgMachines fetches all pages of the list. A machine that changes in the meantime appears
// again on a later page, so the last occurrence is used.
func orgMachines(ctx context.Context, s *cli.Shell, org string, want machinesapi.ListOrgMachines) ([]machinesapi.OrgMachine, []bourse.WorkerID, error) {
	latest := map[bourse.MachineID]machinesapi.OrgMachine{}
	var silent []bourse.WorkerID
	for {
		page, missing, err := s.Client().Org(org).Machines(ctx, want)
		if err != nil {
			return nil, nil, err
		}
		silent = append(silent, missing...)
		for _, m := range page.Machines {
			latest[m.ID] = m
		}
		if page.NextCursor == "" || page.NextCursor == want.Cursor {
			break
		}
		want.Cursor = page.NextCursor
	}
	list := make([]machinesapi.OrgMachine, 0, len(latest))
	for _, m := range latest {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b machinesapi.OrgMachine) int {
		return strings.Compare(a.CreatedAt+string(a.ID), b.CreatedAt+string(b.ID))
	})
	slices.Sort(silent)
	return list, slices.Compact(silent), nil
}
