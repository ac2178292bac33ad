package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newShow(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:               "show [APP]",
		Aliases:           []string{"status"},
		Short:             "Show an app's organization, machines and volumes",
		Example:           "  bourse app show shop",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, _ []string) error {
			a, err := s.Client().App(c.Context(), bourse.AppName(app))
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return cli.Hint(err, "bourse app list")
			}
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(a)
			}
			return printApp(c.Context(), s, &a)
		},
	}
	s.BindApp(c, &app).OrArgument()
	return c
}

func printApp(ctx context.Context, s *cli.Shell, a *machinesapi.App) error {
	machines, silent, err := s.Client().Machines(ctx, a.Name, machinesapi.ListMachines{})
	if err != nil {
		return err
	}
	s.WarnMissing(silent, "machines")
	volumes, _, err := s.Client().Volumes(a.Name).List(ctx)
	if err != nil {
		return err
	}
	states, regions := map[bourse.State]int{}, map[bourse.Region]map[bourse.State]int{}
	for i := range machines {
		m := &machines[i]
		if regions[m.Region] == nil {
			regions[m.Region] = map[bourse.State]int{}
		}
		states[m.State]++
		regions[m.Region][m.State]++
	}
	var f cli.Facts
	f.Add("app", string(a.Name))
	f.Add("id", a.ID)
	f.Add("organization", a.Organization.Slug)
	f.Add("network", a.Network)
	if a.CreatedAt > 0 {
		f.Add("created", cli.Since(time.UnixMilli(a.CreatedAt), s.Now()))
	}
	f.Add("volumes", fmt.Sprint(len(volumes)))
	f.Add("machines", cli.States(states))
	if err := f.Write(s.Out); err != nil || len(regions) == 0 {
		return err
	}
	fmt.Fprintln(s.Out)
	t := cli.NewTable("REGION", "MACHINES").Narrow(1)
	for _, region := range slices.Sorted(maps.Keys(regions)) {
		t.Row(string(region), cli.States(regions[region]))
	}
	return t.Write(s.Out)
}
