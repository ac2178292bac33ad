package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

func newList(s *cli.Shell) *cobra.Command {
	var f listFlags
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List machines",
		Long: `List the machines of an app, with --all-apps those of every app that the token may
access, or with --org those of an organization.

STATE starts with the state that --state accepts, followed by how the program
ended: "stopped (exit 0)", "stopped (failed: exit 1)", "stopped (out of memory)".
RESTARTS counts every start after the first one, whatever caused it. A narrow
terminal shows fewer columns; a pipe receives all of them.`,
		Example: `  bourse machine list
  bourse machine list -a shop --state started --region gru
  bourse machine list --all-apps --worker gru-1
  bourse machine list --org acme --state started
  bourse machine list -q | xargs bourse machine stop`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.org != "" {
				return f.listOrg(c.Context(), s, c)
			}
			want, err := f.query()
			if err != nil {
				return err
			}
			if f.allApps {
				if c.Flags().Changed("app") {
					return bourse.Errorf(bourse.CodeInvalid, "--app and --all-apps are mutually exclusive")
				}
				f.app = ""
			}
			stop := cli.Spin(s.Err, "asking the workers")
			list, silent, err := s.Client().Machines(c.Context(), bourse.AppName(f.app), want)
			stop()
			if err != nil {
				if bourse.CodeOf(err) == bourse.CodeNotFound {
					return cli.Hint(err, "bourse app list")
				}
				return err
			}
			s.WarnMissing(silent, "machines")
			if len(list) == 0 {
				if err := s.CheckFilters(c.Context(), want.Region, want.Worker); err != nil {
					return err
				}
			}
			return printMachines(s, list, f.app, f.quiet)
		},
	}
	f.bind(s, c)
	return c
}

// listFlags select the machines to list.
type listFlags struct {
	app, region, worker string
	org                 string
	states, metadata    []string
	all, allApps, quiet bool
}

func (f *listFlags) bind(s *cli.Shell, c *cobra.Command) {
	s.BindApp(c, &f.app).Unless("all-apps", "org")
	flags := c.Flags()
	flags.BoolVarP(&f.allApps, "all-apps", "A", false, "machines of every app that the token may access")
	flags.StringVarP(&f.org, "org", "o", "", "machines of all apps of this `organization`")
	flags.StringVarP(&f.region, "region", "r", "", "only machines in this `region`")
	flags.StringVarP(&f.worker, "worker", "w", "", "only machines on this `worker`")
	flags.StringSliceVar(&f.states, "state", nil, "only machines in these `states`, separated by commas")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "only machines with this metadata, `NAME=VALUE`; may be repeated")
	flags.BoolVar(&f.all, "all", false, "also destroyed machines that workers still remember")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print only the ids")
	s.CompleteRegions(c)
	cli.CompleteFlag(c, "worker", s.Workers)
	cli.CompleteFixed(c, "state", stateNames()...)
}

func (f *listFlags) query() (machinesapi.ListMachines, error) {
	pairs, err := cli.ParsePairs(f.metadata)
	if err != nil {
		return machinesapi.ListMachines{}, cli.FlagError("--metadata", err)
	}
	want := machinesapi.ListMachines{Deleted: f.all, Region: bourse.Region(f.region), Worker: bourse.WorkerID(f.worker), Metadata: pairs}
	for _, state := range f.states {
		want.States = append(want.States, bourse.State(state))
	}
	return want, nil
}

// printMachines prints the machines of an app, or of several apps if app is "".
func printMachines(s *cli.Shell, list []machinesapi.Machine, app string, quiet bool) error {
	if quiet && !s.JSON {
		for _, m := range list {
			fmt.Fprintln(s.Out, cli.Clean(string(m.ID)))
		}
		return nil
	}
	where := "app " + app
	if app == "" {
		where = "any app"
	}
	none := "no machines in " + where + "; start one with: bourse machine run host -- sleep 60"
	return cli.PrintList(s, list, none, machineTable(s, list, app == ""), func(m *machinesapi.Machine) []string { return machineRow(s, m) })
}

// machineTable returns a table for a list of machines. If apps is set, it has a column for
// the app. On a narrow terminal, only the most important columns are shown.
func machineTable(s *cli.Shell, list []machinesapi.Machine, apps bool) *cli.Table {
	t := cli.NewTable("ID", "NAME", "APP", "STATE", "REGION", "WORKER", "IMAGE", "SIZE", "PORT", "RESTARTS", "EXIT", "AGE", "HOST", "NEXT START").
		Numbers(8, 9, 10, 11).Narrow(3, 6, 2, 1).Drop(10, 13, 7, 8, 6, 5, 9, 11, 4).Paint(3, stateTone)
	if !apps {
		t.Hide(2)
	}
	if !slices.ContainsFunc(list, func(m machinesapi.Machine) bool { return hostWarning(s, &m) != "" }) {
		t.Hide(12) // omit the column if it would be "ok" in every row
	}
	if !slices.ContainsFunc(list, func(m machinesapi.Machine) bool { _, ok := nextStart(s, &m); return ok }) {
		t.Hide(13)
	}
	return t
}

func machineRow(s *cli.Shell, m *machinesapi.Machine) []string {
	image, size, exit := "-", "-", "-"
	if c := m.Known(); c != nil {
		image, size = cmp.Or(c.Image, "-"), cli.Guest(c.Guest)
	}
	if m.Exit != nil {
		exit = strconv.Itoa(m.Exit.ExitCode)
	}
	return []string{
		string(m.ID), m.Name, string(m.App), stateText(m), string(m.Region), cmp.Or(string(m.Worker), "-"), image, size,
		orDash(m.Port > 0, "%d", m.Port), strconv.Itoa(max(0, m.Starts-1)), exit, ageOf(s, m.CreatedAt),
		cmp.Or(hostWarning(s, m), string(machinesapi.HostOK)), nextText(s, m),
	}
}

// hostWarning describes the status of a machine's host if the host does not answer. In that
// case, the machine's data may be outdated. It returns "" if the host answers.
func hostWarning(s *cli.Shell, m *machinesapi.Machine) string {
	if m.HostStatus == "" || m.HostStatus == machinesapi.HostOK {
		return ""
	}
	text := string(m.HostStatus)
	if t, err := time.Parse(time.RFC3339, m.HostHeard); err == nil {
		text += ", last heard from " + cli.Age(s.Now().Sub(t)) + " ago"
	}
	return text
}

// ageOf formats the time that has passed since at, an RFC 3339 timestamp.
func ageOf(s *cli.Shell, at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return "-"
	}
	return cli.Age(s.Now().Sub(t))
}

func stateNames() []string {
	var out []string
	for _, state := range bourse.States() {
		out = append(out, string(state))
	}
	return out
}
