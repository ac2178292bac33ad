package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/workload"
)

// NewStatus returns the "status" command.
func NewStatus(s *cli.Shell) *cobra.Command {
	var app string
	var follow bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show an app's release, machines and health checks",
		Long: `Show an app's latest release and, by process group and region, the states of its
machines, the results of their health checks, and how many of them receive requests.
Proxies send requests to started machines that are not cordoned and pass their checks.
A machine that the next request would start is shown as asleep. With --watch, the
display is updated continuously.`,
		Example: "  bourse status -a shop --watch",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			look := func() (Status, error) { return statusOf(c.Context(), s, bourse.AppName(app), !follow) }
			if follow {
				w := watch{shell: s, look: look, wait: pause}
				return w.run(c.Context())
			}
			end := cli.Spin(s.Err, "asking the workers")
			st, err := look()
			end()
			if err != nil {
				return err
			}
			if s.JSON {
				return s.PrintJSON(st)
			}
			return st.print(s.Out, s)
		},
	}
	s.BindApp(c, &app)
	c.Flags().BoolVarP(&follow, "watch", "w", false, "update the display until Ctrl-C")
	return c
}

// Status is an app's status.
type Status struct {
	App     bourse.AppName    `json:"app"`
	Release *release.Release  `json:"release,omitempty"` // latest release; nil if the app has none
	URLs    []string          `json:"urls,omitempty"`    // URLs at which proxies serve the app, best first
	Groups  []GroupStatus     `json:"groups"`            // sorted by group and region
	Silent  []bourse.WorkerID `json:"silent,omitempty"`  // workers that did not answer; their machines are missing from the status
}

// GroupStatus is the status of a process group's machines in one region.
type GroupStatus struct {
	Group    string                    `json:"group"` // "" for machines without a group
	Region   bourse.Region             `json:"region"`
	Machines int                       `json:"machines"`
	States   map[bourse.State]int      `json:"states"`
	Checks   map[bourse.CheckState]int `json:"checks,omitempty"`
	Releases []string                  `json:"releases,omitempty"` // the machines' release numbers; more than one during a deploy
	// Ports are the ports at which proxies serve the group. If there are none, Served, Serving and
	// Asleep are 0.
	Ports   []int `json:"ports,omitempty"`
	Served  int   `json:"served"`  // machines that have a service with ports
	Serving int   `json:"serving"` // machines that proxies currently send requests to
	Asleep  int   `json:"asleep"`  // stopped or suspended machines that a request would start
	// OneWorker is set if all of the group's machines are on one worker even though other workers
	// would accept some of them.
	OneWorker *OneWorker `json:"one_worker,omitempty"`
	// Trouble contains a line for each problem with the group's machines.
	Trouble []string `json:"trouble,omitempty"`

	lost      bool // the worker of at least one machine is unreachable
	unhealthy bool // at least one machine on a reachable worker has a problem
}

// statusOf fetches an app's status. If quotes is set, it also requests a quote for each group whose
// machines are all on one worker, to find other workers that would accept them. Requesting a quote
// contacts image registries, so it must not be done often.
func statusOf(ctx context.Context, s *cli.Shell, app bourse.AppName, quotes bool) (Status, error) {
	machines, silent, err := s.Client().Machines(ctx, app, machinesapi.ListMachines{})
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return Status{}, cli.Hint(err, "bourse app list")
	}
	if err != nil {
		return Status{}, err
	}
	st := Status{App: app, Groups: groupsOf(machines), Silent: silent}
	if slices.ContainsFunc(st.Groups, func(g GroupStatus) bool { return g.Served > 0 }) {
		st.URLs = urlsOf(ctx, s, app)
	}
	for i := range st.Groups {
		if !quotes {
			break
		}
		g := &st.Groups[i]
		g.OneWorker = oneWorker(ctx, s, app, g, machines)
	}
	list, err := s.Client().Releases(app).List(ctx, 1)
	if bourse.CodeOf(err) == bourse.CodeNotFound { // the default app may not have been created yet
		err = nil
	}
	if len(list) > 0 {
		st.Release = &list[0]
	}
	return st, err
}

// urlTimeout limits the time spent looking up the app's URLs, so that slow proxies do not delay the
// rest of the status.
const urlTimeout = 2 * time.Second

func urlsOf(ctx context.Context, s *cli.Shell, app bourse.AppName) []string {
	ctx, cancel := context.WithTimeout(ctx, urlTimeout)
	defer cancel()
	list, err := machinesapi.Proxies{Client: s.Client()}.Of(ctx, app)
	if err != nil {
		return nil
	}
	return cli.URLs(list)
}

// groupsOf summarizes machines by process group and region.
func groupsOf(machines []machinesapi.Machine) []GroupStatus {
	out := []GroupStatus{}
	for i := range machines {
		m := &machines[i]
		config := cmp.Or(m.Known(), &bourse.Config{})
		group := config.Metadata[deploy.KeyGroup]
		at := slices.IndexFunc(out, func(g GroupStatus) bool { return g.Group == group && g.Region == m.Region })
		if at < 0 {
			at = len(out)
			out = append(out, GroupStatus{
				Group: group, Region: m.Region, States: map[bourse.State]int{}, Checks: map[bourse.CheckState]int{},
			})
		}
		out[at].add(m, config)
	}
	slices.SortFunc(out, func(x, y GroupStatus) int {
		return cmp.Or(cmp.Compare(x.Group, y.Group), cmp.Compare(x.Region, y.Region))
	})
	return out
}

func (g *GroupStatus) add(m *machinesapi.Machine, config *bourse.Config) {
	g.Machines++
	g.States[m.State]++
	failing, reached := false, m.HostStatus == "" || m.HostStatus == machinesapi.HostOK
	for _, c := range m.Checks {
		if m.State == bourse.StateStopped || m.State == bourse.StateSuspended {
			break // a machine that is not running is not checked
		}
		g.Checks[c.Status]++
		failing = failing || c.Status == bourse.CheckCritical
		if c.Status == bourse.CheckCritical {
			g.unhealthy = g.unhealthy || reached
			g.Trouble = append(g.Trouble, cmp.Or(m.Name, string(m.ID))+": check "+c.Name+": "+strings.Join(strings.Fields(c.Output), " "))
		}
	}
	if v := config.Metadata[deploy.KeyVersion]; v != "" && !slices.Contains(g.Releases, v) {
		g.Releases = append(g.Releases, v)
		slices.Sort(g.Releases)
	}
	switch {
	case !reached:
		g.lost = true
		g.Trouble = append(g.Trouble, fmt.Sprintf("%s: worker %s is %s", cmp.Or(m.Name, string(m.ID)), m.Worker, m.HostStatus))
	case m.State == bourse.StateFailed:
		g.unhealthy = true
		g.Trouble = append(g.Trouble, cmp.Or(m.Name, string(m.ID))+": failed")
	case m.Exit != nil && !m.Exit.RequestedStop && m.Exit.ExitCode != 0: // reported until the machine is started again
		g.unhealthy = true
		g.Trouble = append(g.Trouble, fmt.Sprintf("%s: crashed with exit code %d: bourse machine logs -a %s %s", cmp.Or(m.Name, string(m.ID)), m.Exit.ExitCode, m.App, m.ID))
	}
	wakes := false
	services := slices.DeleteFunc(workload.Services(config), func(s workload.Service) bool { return len(s.Ports) == 0 })
	for _, service := range services {
		wakes = wakes || service.Autostart
		for _, p := range service.Ports {
			if !slices.Contains(g.Ports, p.First) {
				g.Ports = append(g.Ports, p.First)
				slices.Sort(g.Ports)
			}
		}
	}
	if len(services) > 0 {
		g.Served++
	}
	switch served := len(services) > 0 && reached && !m.Cordoned; {
	case served && m.State == bourse.StateStarted && !failing:
		g.Serving++
	case served && wakes && (m.State == bourse.StateStopped || m.State == bourse.StateSuspended) && len(config.Standbys) == 0:
		g.Asleep++
	}
}

func (st *Status) print(out cli.Stream, s *cli.Shell) error {
	var f cli.Facts
	f.Add("app", string(st.App))
	if r := st.Release; r != nil {
		text := fmt.Sprintf("v%d %s, %s", r.Version, r.Status, cli.Since(r.CreatedAt, s.Now()))
		if r.User != "" {
			text += ", by " + r.User
		}
		f.Add("release", text)
		f.Add("image", r.Image)
	}
	if len(st.URLs) > 0 {
		f.Add("url", st.URLs[0])
	}
	if len(st.Silent) > 0 {
		f.Add("missing", fmt.Sprintf("machines of workers that do not answer: %v", st.Silent))
	}
	if err := f.Write(out); err != nil {
		return err
	}
	if len(st.Groups) == 0 {
		_, err := fmt.Fprintln(out, "\nno machines; create some with: bourse deploy, or bourse machine run")
		return err
	}
	fmt.Fprintln(out)
	t := cli.NewTable("GROUP", "REGION", "MACHINES", "RELEASE", "CHECKS", "SERVED").Narrow(5, 2, 4).Wrap()
	for i := range st.Groups {
		g := &st.Groups[i]
		t.Row(cmp.Or(g.Group, "-"), string(g.Region), cli.States(g.States), versions(g.Releases), g.checks(), g.served())
	}
	if err := t.Write(out); err != nil {
		return err
	}
	for _, line := range st.trouble() {
		for _, part := range cli.Wrap(cli.Clean("! "+line), out.Width, 2) {
			if _, err := fmt.Fprintln(out, part); err != nil {
				return err
			}
		}
	}
	for _, line := range st.next() {
		if _, err := fmt.Fprintln(out, s.WithProgramName("  try: "+line)); err != nil {
			return err
		}
	}
	return nil
}

// maxTrouble limits the number of problems that are shown.
const maxTrouble = 10

// trouble lists the app's problems.
func (st *Status) trouble() []string {
	var out []string
	for i := range st.Groups {
		out = append(out, st.Groups[i].Trouble...)
		if one := st.Groups[i].OneWorker; one != nil {
			out = append(out, fmt.Sprintf("all machines of group %s in %s are on worker %s, and would be lost with it", st.Groups[i].Group, st.Groups[i].Region, one.Worker))
		}
	}
	if r := st.Release; r != nil && r.Status == release.Interrupted {
		out = append(out, fmt.Sprintf("release v%d was interrupted", r.Version))
	}
	return cli.Bounded(out, maxTrouble)
}

// next suggests commands that help with the app's problems.
func (st *Status) next() []string {
	var out []string
	if slices.ContainsFunc(st.Groups, func(g GroupStatus) bool { return g.unhealthy }) {
		out = append(out, "bourse logs -a "+string(st.App), "bourse events -a "+string(st.App))
	}
	if slices.ContainsFunc(st.Groups, func(g GroupStatus) bool { return g.lost }) {
		out = append(out, "bourse worker list")
	}
	if r := st.Release; r != nil && r.Status == release.Interrupted {
		out = append(out, "bourse deploy --resume -a "+string(st.App), "bourse rollback -a "+string(st.App))
	}
	for i := range st.Groups {
		if one := st.Groups[i].OneWorker; one != nil {
			out = append(out, one.commands(st.App)...)
		}
	}
	return out
}

func versions(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return "v" + strings.Join(list, ", v")
}

func (g *GroupStatus) checks() string {
	var parts []string
	for _, s := range []bourse.CheckState{bourse.CheckCritical, bourse.CheckWarning, bourse.CheckPassing} {
		if n := g.Checks[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

// served formats how many machines receive requests, for example "2 of 3, 1 asleep".
func (g *GroupStatus) served() string {
	if len(g.Ports) == 0 {
		return "-"
	}
	text := fmt.Sprintf("%d of %d", g.Serving, g.Served)
	if g.Asleep > 0 {
		text += fmt.Sprintf(", %d asleep", g.Asleep)
	}
	return text
}
