package machine

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newVersions(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:   "versions MACHINE",
		Short: "List a machine's versions, newest first",
		Long: `List a machine's versions, newest first. The first one is current. The machine's
worker keeps the last 20 versions, at most 256 KiB in total, with their configs, which
--json shows. To return to a version, run "bourse machine update --to-version".`,
		Example:           "  bourse machine versions quiet-river-1234",
		Args:              cli.Exactly(1),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := resolve(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			list, err := s.Client().Versions(c.Context(), bourse.AppName(app), id)
			if err != nil {
				return about(err, app, id)
			}
			return cli.PrintList(s, list, "machine "+string(id)+" has no versions",
				cli.NewTable("VERSION", "CREATED", "IMAGE", "CPUS", "MEMORY", "COMMAND").Numbers(3, 4).Narrow(5).Drop(5).Drop(3), versionRow)
		},
	}
	s.BindApp(c, &app)
	return c
}

func versionRow(v *machinesapi.Version) []string {
	made := "-"
	if at := v.Version.Time(); !at.IsZero() {
		made = cli.At(at)
	}
	c := v.Config
	if c == nil {
		c = &bourse.Config{}
	}
	guest := bourse.Guest{}.WithDefaults()
	if c.Guest != nil {
		guest = *c.Guest
	}
	return []string{
		string(v.Version), made, c.Image, fmt.Sprint(guest.CPUs), bourse.ResourceMemory.Show(int64(guest.MemoryMB)),
		strings.Join(c.Init.Command(), " "),
	}
}
