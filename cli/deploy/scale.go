package deploy

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/config"
	"github.com/bourse-dev/bourse/deploy/run"
)

// NewScale returns the "bourse scale" commands.
func NewScale(s *cli.Shell) *cobra.Command {
	return cli.Noun("scale", "Change the number and the size of an app's machines", newScaleShow(s), newScaleCount(s), newScaleVM(s))
}

func newScaleShow(s *cli.Shell) *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:     "show",
		Short:   "Show how many machines an app has, by group, size and region",
		Example: "  bourse scale show -a shop",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			app, err := t.name()
			if err != nil {
				return err
			}
			return scaleShow(c.Context(), s, app)
		},
	}
	t.bind(s, c)
	return c
}

// scaled counts a group's machines of one size in one region.
type scaled struct {
	Group  string               `json:"group"`
	Region bourse.Region        `json:"region"`
	Guest  bourse.Guest         `json:"guest"`
	Count  int                  `json:"count"`
	States map[bourse.State]int `json:"states"`
}

func scaleShow(ctx context.Context, s *cli.Shell, app bourse.AppName) error {
	have, err := readState(ctx, s, app)
	if err != nil {
		return err
	}
	if err := have.requireApp(); err != nil {
		return err
	}
	t := cli.NewTable("GROUP", "REGION", "COUNT", "SIZE", "MACHINES").Numbers(2).Narrow(4).Wrap()
	return cli.PrintList(s, sizes(have), "no machines; to create some: bourse deploy", t, func(x *scaled) []string {
		return []string{x.Group, string(x.Region), strconv.Itoa(x.Count), cli.Guest(&x.Guest), cli.States(x.States)}
	})
}

func sizes(have *appState) []scaled {
	type place struct {
		group  string
		region bourse.Region
		guest  string
	}
	all := map[place]*scaled{}
	for i := range have.Machines {
		m := &have.Machines[i]
		config := m.Known()
		if m.State == bourse.StateDestroyed || config == nil {
			continue
		}
		var guest bourse.Guest
		if config.Guest != nil {
			guest = *config.Guest
		}
		guest = guest.WithDefaults()
		k := place{groupOf(config), m.Region, cli.Guest(&guest)}
		if all[k] == nil {
			all[k] = &scaled{Group: k.group, Region: k.region, Guest: guest, States: map[bourse.State]int{}}
		}
		all[k].Count++
		all[k].States[m.State]++
	}
	var out []scaled
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b place) int {
		return strings.Compare(a.group+"\x00"+string(a.region)+"\x00"+a.guest, b.group+"\x00"+string(b.region)+"\x00"+b.guest)
	}) {
		out = append(out, *all[k])
	}
	return out
}

func groupOf(c *bourse.Config) string {
	if group := c.Metadata[deploy.KeyGroup]; group != "" {
		return group
	}
	return deploy.DefaultGroup
}

// workFlags are the flags of commands that change existing machines. These commands read only the
// app's name from a configuration file.
type workFlags struct {
	target
	planFlags
	group          string
	maxUnavailable float64
	wait           time.Duration
}

func (f *workFlags) bind(s *cli.Shell, c *cobra.Command) *cli.AppFlag {
	app := f.target.bind(s, c)
	f.planFlags.bind(c)
	flags := c.Flags()
	flags.StringVarP(&f.group, "group", "g", "", "only machines of this `group`")
	flags.StringVar(&f.group, "process-group", "", "--group under the name that flyctl uses")
	_ = flags.MarkHidden("process-group") // fails only if the flag does not exist
	flags.Float64Var(&f.maxUnavailable, "max-unavailable", config.DefaultMaxUnavailable, "`number` of machines of a group that may be unavailable at a time, or their share")
	flags.DurationVar(&f.wait, "wait-timeout", config.DefaultWait, "`time` limit for a machine to become ready")
	return app
}

func (f *workFlags) pace() deploy.Pace {
	return deploy.Pace{MaxUnavailable: f.maxUnavailable, Wait: bourse.Duration(f.wait), Smoke: true}
}

// groups returns the groups to change; nil means all.
func (f *workFlags) groups() []string {
	if f.group == "" {
		return nil
	}
	return []string{f.group}
}

// run creates a plan and executes it. With --plan, it only prints the plan.
func (f *workFlags) run(ctx context.Context, s *cli.Shell, doing string, plan func(*appState) (deploy.Plan, error)) error {
	d := newDeployer(s, &f.target, &f.planFlags)
	err := d.work(ctx, doing, plan)
	if f.only {
		return planExit(err)
	}
	return err
}

func (d *deployer) work(ctx context.Context, doing string, plan func(*appState) (deploy.Plan, error)) error {
	app, err := d.target.name()
	if err != nil {
		return err
	}
	have, err := readState(ctx, d.shell, app)
	if err == nil {
		err = have.requireApp()
	}
	if err != nil {
		return err
	}
	p, err := plan(have)
	if err != nil {
		return err
	}
	if d.only {
		return d.show(ctx, &p, have)
	}
	if err := refused(&p); err != nil {
		return err
	}
	if len(p.Steps) == 0 {
		return d.reportNothing(&p)
	}
	if err := d.fits(ctx, &p, have); err != nil {
		return err
	}
	d.resumeCommands = []string{"the same command again"}
	_, err = d.execute(ctx, &p, plan, doing+" of "+string(app), run.Options{})
	return err
}

func newScaleCount(s *cli.Shell) *cobra.Command {
	var f workFlags
	var region string
	c := &cobra.Command{
		Use:   "count [GROUP=]N...",
		Short: "Change how many machines an app has",
		Long: `Change how many machines an app has: in its only group, in the group that --group
names, or in the groups before the numbers. Without --region, N is the total, and the
regions with machines share the difference. With --region, N is the total of the listed
regions: machines are created and destroyed until these regions have equal shares, and
other regions keep their machines. New machines are like the existing ones.`,
		Example: `  bourse scale count 3
  bourse scale count web=4 worker=2
  bourse scale count 3 --region gru,mad
  bourse scale count 2 --region mad --plan`,
		Args: cli.AtLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			listed, err := regionsOf(region)
			if err != nil {
				return err
			}
			return f.run(c.Context(), s, "scale count "+strings.Join(args, " "), func(have *appState) (deploy.Plan, error) {
				counts, err := countsOf(have, f.group, listed, args)
				if err != nil {
					return deploy.Plan{}, err
				}
				return deploy.Scale(have.State, counts, f.pace()), nil
			})
		},
	}
	f.bind(s, c)
	c.Flags().StringVarP(&region, "region", "r", "", "`region` or regions that N is for, such as gru,mad")
	s.CompleteRegions(c)
	return c
}

func newScaleVM(s *cli.Shell) *cobra.Command {
	var f workFlags
	var size place.Size
	c := &cobra.Command{
		Use:   "vm [SIZE]",
		Short: "Change the size of an app's machines",
		Long: `Change the size of an app's machines, a few machines at a time. If the app's
configuration contains a size, the next deploy sets that one again.`,
		Example: `  bourse scale vm shared-cpu-2x
  bourse scale vm --vm-memory 512MiB --group worker`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				if err := c.Flags().Set("vm-size", args[0]); err != nil {
					return err
				}
			}
			if !sizeGiven(c) {
				return cli.UsageError(c)
			}
			return f.run(c.Context(), s, "scale vm", func(have *appState) (deploy.Plan, error) {
				guest, err := newSize(have, f.group, &size)
				if err != nil {
					return deploy.Plan{}, err
				}
				return deploy.Resize(have.State, f.groups(), *guest, f.pace()), nil
			})
		},
	}
	f.bind(s, c)
	size.Bind(c.Flags())
	return c
}

// regionsOf parses a list of regions, such as "gru,mad".
func regionsOf(list string) ([]bourse.Region, error) {
	if list == "" {
		return nil, nil
	}
	var out []bourse.Region
	for word := range strings.SplitSeq(list, ",") {
		region := bourse.Region(strings.ToLower(strings.TrimSpace(word)))
		if err := region.Validate(); err != nil {
			return nil, cli.Hint(bourse.Errorf(bourse.CodeInvalid, "--region %s: use regions such as gru,mad", bourse.Quoted(list)), "bourse region list")
		}
		if !slices.Contains(out, region) {
			out = append(out, region)
		}
	}
	return out, nil
}

// groupNames returns the sorted names of groups that have machines.
func groupNames(have *appState) []string {
	var out []string
	for i := range have.Machines {
		if c := have.Machines[i].Known(); c != nil && c.Metadata[deploy.KeyPlatform] == deploy.Platform {
			out = append(out, groupOf(c))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// countsOf parses the desired numbers of machines. Each argument is GROUP=N or just N. A plain N
// applies to the group named by group or, if group is "", to the app's only group.
func countsOf(have *appState, group string, regions []bourse.Region, args []string) (map[string][]deploy.Count, error) {
	groups := groupNames(have)
	out := map[string][]deploy.Count{}
	for _, arg := range args {
		name, number, named := strings.Cut(arg, "=")
		if !named {
			name, number = group, arg
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > deploy.MaxCount {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s: use a number from 0 to %d", bourse.Quoted(number), deploy.MaxCount)
		}
		switch {
		case name == "" && len(groups) > 1:
			return nil, bourse.Errorf(bourse.CodeInvalid, "the app has several groups, %s: name one, for example %s=%d", strings.Join(groups, ", "), groups[0], n)
		case name == "" && len(groups) == 1:
			name = groups[0]
		case name == "":
			name = deploy.DefaultGroup
		}
		out[name] = counts(have, name, regions, n)
	}
	return out, nil
}

// counts returns the desired number of a group's machines in each region. If regions is
// set, n is divided among these regions, and other regions keep their current number.
// Otherwise n is the total for the regions that have machines.
func counts(have *appState, group string, regions []bourse.Region, n int) []deploy.Count {
	there := map[bourse.Region]int{}
	for i := range have.Machines {
		m := &have.Machines[i]
		c := m.Known()
		if c == nil || m.State == bourse.StateDestroyed || c.Metadata[deploy.KeyPlatform] != deploy.Platform || groupOf(c) != group {
			continue
		}
		if len(c.Standbys) > 0 {
			continue // standbys are not counted
		}
		there[m.Region]++
	}
	if len(regions) > 0 {
		maps.Copy(there, divide(there, regions, n))
		return listed(there)
	}
	if len(there) == 0 {
		return []deploy.Count{{Count: n}}
	}
	return listed(adjustRegions(there, n))
}

// divide divides n equally among regions. The remainder goes to the regions that have the most
// machines now, so that as few machines as possible are created or destroyed. Ties go to the
// regions listed first.
func divide(now map[bourse.Region]int, regions []bourse.Region, n int) map[bourse.Region]int {
	sorted := slices.Clone(regions)
	slices.SortStableFunc(sorted, func(a, b bourse.Region) int { return now[b] - now[a] })
	out := map[bourse.Region]int{}
	for i, region := range sorted {
		out[region] = n / len(sorted)
		if i < n%len(sorted) {
			out[region]++
		}
	}
	return out
}

// adjustRegions adds or removes machines one at a time until the total is n. Each step adds a
// machine to the region with the fewest, or removes one from the region with the most. Ties go to
// the region that is first in alphabetical order.
func adjustRegions(there map[bourse.Region]int, n int) map[bourse.Region]int {
	out := maps.Clone(there)
	regions := slices.Sorted(maps.Keys(out))
	sum := 0
	for _, k := range out {
		sum += k
	}
	pick := func(better func(a, b int) bool) bourse.Region {
		best := regions[0]
		for _, r := range regions {
			if better(out[r], out[best]) {
				best = r
			}
		}
		return best
	}
	for ; sum < n; sum++ {
		out[pick(func(a, b int) bool { return a < b })]++
	}
	for ; sum > n; sum-- {
		out[pick(func(a, b int) bool { return a > b })]--
	}
	return out
}

func listed(counts map[bourse.Region]int) []deploy.Count {
	var out []deploy.Count
	for _, r := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, deploy.Count{Region: r, Count: counts[r]})
	}
	return out
}

// newSize applies size flags to the current size of a group's machines, or of all machines
// if group is "". It returns an error if the resulting sizes differ.
func newSize(have *appState, group string, size *place.Size) (*bourse.Guest, error) {
	var out *bourse.Guest
	for _, x := range sizes(have) {
		if group != "" && x.Group != group {
			continue
		}
		guest, err := size.Change(x.Guest)
		if err != nil {
			return nil, err
		}
		if out != nil && *out != *guest {
			return nil, cli.Hint(bourse.Errorf(bourse.CodeInvalid, "the machines have different sizes: %s and %s", cli.Guest(out), cli.Guest(guest)),
				"bourse scale show", "--vm-size, for the whole size", "--group, for one group")
		}
		out = guest
	}
	if out == nil {
		return nil, cli.Hint(bourse.Errorf(bourse.CodeNotFound, "there is no machine to resize"), "bourse scale show")
	}
	return out, nil
}

// NewAppRestart returns the command "bourse app restart".
func NewAppRestart(s *cli.Shell) *cobra.Command {
	var f workFlags
	c := &cobra.Command{
		Use:   "restart [APP]",
		Short: "Restart an app's machines, a few at a time",
		Long: `Restart an app's machines, a few at a time: each has to be ready before the next.
Machines that are not running are left alone.`,
		Example: `  bourse app restart shop
  bourse app restart shop --group web --max-unavailable 1`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cli.Complete(s.Apps),
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), s, "restart", func(have *appState) (deploy.Plan, error) {
				return deploy.Restart(have.State, f.groups(), f.pace()), nil
			})
		},
	}
	f.bind(s, c).OrArgument()
	return c
}
