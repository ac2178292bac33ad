package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func (s *shell) machineList() *cobra.Command {
	var app, region string
	var states, metadata []string
	var all, quiet bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List an app's machines",
		Example: `  bourse machine list
  bourse machine list -a shop --state started --region gru
  bourse machine list -q | xargs bourse machine stop`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			pairs, err := parsePairs(metadata)
			if err != nil {
				return named("--metadata", err)
			}
			want := machinesapi.ListMachines{Deleted: all, Region: bourse.Region(region), Metadata: pairs}
			for _, state := range states {
				want.States = append(want.States, bourse.State(state))
			}
			stop := spin(s.Err, "asking the workers")
			list, silent, err := s.client().Machines(c.Context(), bourse.AppName(app), want)
			stop()
			if err != nil {
				if bourse.CodeOf(err) == bourse.CodeNotFound {
					return hint(err, "bourse app list")
				}
				return err
			}
			s.warnAbout(silent, "machines")
			return s.printMachines(list, app, quiet)
		},
	}
	s.bindApp(c, &app)
	flags := c.Flags()
	flags.StringVarP(&region, "region", "r", "", "only of this `region`")
	flags.StringSliceVar(&states, "state", nil, "only in these `states`, comma separated")
	flags.StringArrayVarP(&metadata, "metadata", "m", nil, "only with this metadata, `NAME=VALUE`; may be repeated")
	flags.BoolVar(&all, "all", false, "destroyed ones, too, while they are remembered")
	flags.BoolVarP(&quiet, "quiet", "q", false, "only the ids")
	s.completeRegions(c)
	fixed(c, "state", stateNames()...)
	return c
}

func (s *shell) printMachines(list []machinesapi.Machine, app string, quiet bool) error {
	if s.json {
		if list == nil {
			list = []machinesapi.Machine{}
		}
		return s.printJSON(list)
	}
	if quiet {
		for _, m := range list {
			fmt.Fprintln(s.Out, clean(string(m.ID)))
		}
		return nil
	}
	if len(list) == 0 {
		s.say("no machines in app " + app + "; start one with: bourse machine run host -- sleep 60")
		return nil
	}
	head := []string{"ID", "NAME", "STATE", "REGION", "WORKER", "SIZE", "AGE"}
	doubtful := slices.ContainsFunc(list, func(m machinesapi.Machine) bool { return s.hostDoubt(&m) != "" })
	if doubtful { // a column that is ok everywhere tells nothing
		head = append(head, "HOST")
	}
	t := newTable(head...).numbers(6).narrow(1, 4)
	for i := range list {
		m := &list[i]
		size := "-"
		if m.Config != nil {
			size = guest(m.Config.Guest)
		}
		row := []string{string(m.ID), m.Name, string(m.State), string(m.Region), dash(string(m.Worker)), size, s.since(m.CreatedAt)}
		if doubtful {
			row = append(row, orElse(s.hostDoubt(m), string(machinesapi.HostOK)))
		}
		t.row(row...)
	}
	return t.write(s.Out, s.Out.Width)
}

// hostDoubt says why what is told of a machine may be old: its host is not
// heard from. It is "" for a host that is.
func (s *shell) hostDoubt(m *machinesapi.Machine) string {
	if m.HostStatus == "" || m.HostStatus == machinesapi.HostOK {
		return ""
	}
	text := string(m.HostStatus)
	if t, err := time.Parse(time.RFC3339, m.HostHeard); err == nil {
		text += ", heard " + age(s.Now().Sub(t)) + " ago"
	}
	return text
}

// since shows how long ago an RFC 3339 time was.
func (s *shell) since(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return "-"
	}
	return age(s.Now().Sub(t))
}

func stateNames() []string {
	var out []string
	for _, state := range bourse.States() {
		out = append(out, string(state))
	}
	return out
}
