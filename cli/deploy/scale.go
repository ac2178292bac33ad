package deploy

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/release"
)

// NewScale returns the commands of an app's size.
func NewScale(s *cli.Shell) *cobra.Command {
	return cli.Noun("scale", "Change how many machines an app has, and how large", newScaleShow(s), newScaleCount(s), newScaleVM(s))
}

func newScaleShow(s *cli.Shell) *cobra.Command {
	var t target
	c := &cobra.Command{
		Use:     "show",
		Short:   "Show how many machines an app has, where and how large",
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

// scaled are the machines of a group in one region that are of one size.
type scaled struct {
	Group  string               `json:"group"`
	Region bourse.Region        `json:"region"`
	Guest  bourse.Guest         `json:"guest"`
	Count  int                  `json:"count"`
	States map[bourse.State]int `json:"states"`
}

func scaleShow(ctx context.Context, s *cli.Shell, app bourse.AppName) error {
	have, err := look(ctx, s.Client(), app)
	if err != nil {
		return err
	}
	if err := have.mustBe(); err != nil {
		return err
	}
	t := cli.NewTable("GROUP", "REGION", "COUNT", "SIZE", "MACHINES").Numbers(2).Narrow(4)
	return cli.PrintList(s, sizes(have), "no machines: bourse deploy makes them", t, func(x *scaled) []string {
		return []string{x.Group, string(x.Region), strconv.Itoa(x.Count), cli.Guest(&x.Guest), cli.States(x.States)}
	})
}

func sizes(have *there) []scaled {
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

// scaleFlags are the flags of the verbs that change sizes.
type scaleFlags struct {
	target
	planFlags
	group, region string
	size          place.Size
}

func (f *scaleFlags) bind(s *cli.Shell, c *cobra.Command) {
	f.target.bind(s, c)
	c.Flags().BoolVar(&f.only, "plan", false, "show what would be done, and touch nothing")
	c.Flags().StringVarP(&f.group, "group", "g", "", "`group` of machines that is meant")
	c.Flags().StringVar(&f.group, "process-group", "", "the same, as flyctl calls it")
	_ = c.Flags().MarkHidden("process-group") // fails for an unknown flag only
}

func newScaleCount(s *cli.Shell) *cobra.Command {
	var f scaleFlags
	c := &cobra.Command{
		Use:   "count [GROUP=]N...",
		Short: "Change how many machines an app has",
		Long: `Change how many machines an app has: of its only group, of the one that --group
names, or of those before the numbers. With --region so many in that region; without
it so many in all, where the newest release has them. What is there stays as it is.`,
		Example: `  bourse scale count 3
  bourse scale count web=4 worker=2
  bourse scale count 2 --region mad --plan`,
		Args: cli.AtLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), s, "scale count "+strings.Join(args, " "), func(have *there, app *deploy.App) error {
				return f.count(have, app, args)
			})
		},
	}
	f.bind(s, c)
	c.Flags().StringVarP(&f.region, "region", "r", "", "`region` that is meant")
	s.CompleteRegions(c)
	return c
}

func newScaleVM(s *cli.Shell) *cobra.Command {
	var f scaleFlags
	c := &cobra.Command{
		Use:   "vm [SIZE]",
		Short: "Change how large an app's machines are",
		Long: `Change how large an app's machines are: some are updated at a time, as a deploy does
it. A configuration that has a size sets it again at the next deploy.`,
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
			return f.run(c.Context(), s, strings.TrimSpace("scale vm "+f.group), func(_ *there, app *deploy.App) error { return f.resize(app) })
		},
	}
	f.bind(s, c)
	f.size.Bind(c.Flags())
	return c
}

// run changes what the app is to be, and makes it so.
func (f *scaleFlags) run(ctx context.Context, s *cli.Shell, doing string, change func(*there, *deploy.App) error) error {
	d := newDeployer(s, &f.target, &f.planFlags)
	err := d.rescale(ctx, doing, change)
	if f.only {
		return planExit(err)
	}
	return err
}

func (d *deployer) rescale(ctx context.Context, doing string, change func(*there, *deploy.App) error) error {
	app, err := d.target.name()
	if err != nil {
		return err
	}
	have, err := look(ctx, d.client, app)
	if err != nil {
		return err
	}
	if err := have.mustBe(); err != nil {
		return err
	}
	current := slices.IndexFunc(have.releases, func(r release.Release) bool { return r.Status == release.Complete })
	if current < 0 {
		return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "app %s has no complete release that says what its machines are like", app),
			"bourse deploy", "one more machine like another: bourse machine clone MACHINE")
	}
	if unfinished(&have.releases[0]) {
		return cli.Hint(bourse.Errorf(bourse.CodeConflict, "release %s of %s has not ended", vName(&have.releases[0]), app), d.goOn()...)
	}
	w, err := wantOf(&have.releases[current])
	if err != nil {
		return err
	}
	w.App.Command = nil // the configuration is the same
	if err := change(have, &w.App); err != nil {
		return err
	}
	w.Description = doing
	return d.make(ctx, w, have, "")
}

// groupNamed finds a group; "" is the only one.
func groupNamed(app *deploy.App, name string) (*deploy.Group, error) {
	names := make([]string, len(app.Groups))
	for i := range app.Groups {
		if names[i] = app.Groups[i].Name; names[i] == name || name == "" && len(app.Groups) == 1 {
			return &app.Groups[i], nil
		}
	}
	if name == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "which group? Use one of %s", strings.Join(names, ", "))
	}
	return nil, bourse.Errorf(bourse.CodeNotFound, "app %s has no group %s, but %s", app.Name, bourse.Quoted(name), strings.Join(names, ", "))
}

// count changes how many machines there are to be of groups.
func (f *scaleFlags) count(have *there, app *deploy.App, args []string) error {
	for _, arg := range args {
		name, number, named := strings.Cut(arg, "=")
		if !named {
			name, number = f.group, arg
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n > deploy.MaxCount {
			return bourse.Errorf(bourse.CodeInvalid, "%s: use a number from 0 to %d", bourse.Quoted(number), deploy.MaxCount)
		}
		g, err := groupNamed(app, name)
		if err != nil {
			return err
		}
		g.Counts = counts(have, app, g, bourse.Region(f.region), n)
	}
	return nil
}

// counts are so many machines of a group in one region, with as many as there are in the others;
// without a region so many in all: as evenly as it goes in those regions that have some.
func counts(have *there, app *deploy.App, g *deploy.Group, region bourse.Region, n int) []deploy.Count {
	there := map[bourse.Region]int{}
	for i := range have.Machines {
		m := &have.Machines[i]
		c := m.Known()
		if c == nil || m.State == bourse.StateDestroyed || c.Metadata[deploy.KeyPlatform] != deploy.Platform || groupOf(c) != g.Name {
			continue
		}
		if standsBy, err := c.StandsBy(); err == nil && len(standsBy) > 0 {
			continue // it is none of those that are counted
		}
		there[m.Region]++
	}
	if region != "" {
		there[region] = n
		return listed(there)
	}
	if len(there) == 0 {
		return []deploy.Count{{Region: app.Primary, Count: n}}
	}
	return listed(spread(there, n))
}

// spread makes n of what is there, one at a time: one more where the fewest are, or one less
// where the most are; ties in the order of the regions.
func spread(there map[bourse.Region]int, n int) map[bourse.Region]int {
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

// resize changes the size of the machines of a group, or of all.
func (f *scaleFlags) resize(app *deploy.App) error {
	for i := range app.Groups {
		g := &app.Groups[i]
		if f.group != "" && g.Name != f.group {
			continue
		}
		old := bourse.Guest{}
		if g.Config.Guest != nil {
			old = *g.Config.Guest
		}
		guest, err := f.size.Change(old)
		if err != nil {
			return err
		}
		g.Config.Guest, g.KeepGuest = guest, false
	}
	if f.group != "" {
		_, err := groupNamed(app, f.group)
		return err
	}
	return nil
}
