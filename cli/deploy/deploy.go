// Package deploy has the commands that change an app as a whole: deploy, rollback,
// releases, scale and restart, one a file. Each makes a plan of package deploy, records
// a release where the app's configuration changes, and has the plan carried out by
// package deploy/run; nothing of it needs more than the public API.
package deploy

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/release"
)

// deployFlags are the flags of deploy.
type deployFlags struct {
	target
	planFlags
	size                 place.Size
	sized                bool // a flag of size is given
	image, strategy      string
	build                buildFlags
	registry             registryFlags
	maxUnavailable       float64
	wait, commandTimeout time.Duration
	ha, smoke            bool
	region, org          string
	env                  []string
	reserve, keep        bool
	noCommand, resume    bool
	message              string
}

// planFlags say what becomes of a plan.
type planFlags struct {
	only  bool // it is printed, and nothing is touched
	watch time.Duration
}

// New returns the command deploy.
func New(s *cli.Shell) *cobra.Command {
	var f deployFlags
	c := &cobra.Command{
		Use:   "deploy",
		Short: "Make an app what its configuration says",
		Long: `Make an app what its configuration says: machines are made, updated in place and
destroyed, some at a time, and each has to be ready before it counts. When one
fails, or at Ctrl-C, all that was changed is returned to what it was before; what
the failed machine wrote last is shown first. The app is made if there is none.

The configuration is fly.toml, fly.json, fly.yaml or bourse.toml, here or where
--config says. What a deploy would do is shown by --plan, which touches nothing
and ends with 0 when there is nothing to do, 2 when there are changes and 1 when
it cannot be.

A deploy that was broken off is gone on with by --resume, and undone by bourse
rollback. docs/deploy.md tells more.`,
		Example: `  bourse deploy
  bourse deploy --plan
  bourse deploy --image registry.example.com/shop:2 --strategy bluegreen
  bourse deploy -c worker.toml -e MODE=fast --wait-timeout 1m
  bourse deploy --resume`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.sized = sizeGiven(c)
			d := newDeployer(s, &f.target, &f.planFlags)
			d.keep = f.keep
			err := d.deploy(c.Context(), &f)
			if f.only {
				return planExit(err)
			}
			return err
		},
	}
	f.bind(s, c)
	return c
}

func (f *deployFlags) bind(s *cli.Shell, c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.app, "app", "a", s.Getenv("BOURSE_APP"), "`app`, instead of the configuration's; also BOURSE_APP")
	cli.CompleteFlag(c, "app", s.Apps)
	f.bindConfig(c)
	f.planFlags.bind(c)
	flags.StringVarP(&f.image, "image", "i", "", "`image` of all machines, instead of the configuration's")
	f.build.bind(c)
	f.registry.bind(flags)
	flags.StringVar(&f.strategy, "strategy", "", "`how` machines are replaced: rolling, immediate, canary or bluegreen")
	flags.Float64Var(&f.maxUnavailable, "max-unavailable", 0, "of a rolling deploy, `how many` machines of a group at once, or which share (0.33)")
	flags.DurationVar(&f.wait, "wait-timeout", 0, "how `long` a machine may take until it is ready (default 5m)")
	flags.DurationVar(&f.commandTimeout, "release-command-timeout", 0, "how `long` the release command may take (default 5m)")
	flags.BoolVar(&f.noCommand, "skip-release-command", false, "do not run the release command")
	flags.BoolVar(&f.smoke, "smoke-checks", true, "a machine that ends soon after its start has failed")
	flags.BoolVar(&f.ha, "ha", true, "make a spare for each group of the first deploy")
	flags.StringVarP(&f.region, "region", "r", "", "`region` of new machines, instead of primary_region")
	flags.StringVar(&f.region, "primary-region", "", "the same, as flyctl calls it")
	_ = flags.MarkHidden("primary-region") // fails for an unknown flag only
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment over the configuration's, `NAME=VALUE`; may be repeated")
	f.size.Bind(flags)
	flags.BoolVar(&f.reserve, "reserve", false, "hold room for all of it first, or change nothing")
	flags.BoolVar(&f.keep, "no-rollback", false, "leave what was changed when a machine fails")
	flags.BoolVar(&f.resume, "resume", false, "go on with the newest release, which was broken off")
	flags.StringVarP(&f.message, "message", "m", "", "`text` that the release is described with")
	flags.StringVar(&f.org, "org", "", "`organisation` of an app that is made (default personal)")
	s.CompleteRegions(c)
	cli.CompleteFixed(c, "strategy", string(deploy.Rolling), string(deploy.Immediate), string(deploy.Canary), string(deploy.BlueGreen))
}

// watchFor is the default of --watch-for, the same as in flyctl.
const watchFor = 10 * time.Second

func (f *planFlags) bind(c *cobra.Command) {
	c.Flags().BoolVar(&f.only, "plan", false, "show what would be done, and touch nothing")
	c.Flags().DurationVar(&f.watch, "watch-for", watchFor, "how `long` each machine is watched after it became ready; one that crashes in that time has failed")
}

// sizeFlags are those of [place.Size].
var sizeFlags = []string{"vm-size", "vm-cpus", "vm-memory", "vm-cpu-kind", "vm-gpus", "vm-gpu-kind"}

func sizeGiven(c *cobra.Command) bool {
	for _, name := range sizeFlags {
		if c.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// Exit statuses of --plan.
const (
	planErrors  = 1
	planChanges = 2
)

// errChanges is how a plan that has steps ends: it says all itself.
const errChanges = cli.ExitStatus(planChanges)

// planExit gives the error of --plan its exit status: 2 is for changes.
func planExit(err error) error {
	if err == nil || errors.Is(err, errChanges) {
		return err
	}
	if bourse.CodeOf(err) == bourse.CodeCanceled {
		return err
	}
	return cli.EndsWith(err, planErrors)
}

// target is the app that a command is about.
type target struct {
	app    string
	config string // file; "": the one that is here
}

// bind adds the flags to a command that needs no more of the configuration than the app.
func (t *target) bind(s *cli.Shell, c *cobra.Command) *cli.AppFlag {
	t.bindConfig(c)
	return s.BindApp(c, &t.app).Required(c, &t.config)
}

func (t *target) bindConfig(c *cobra.Command) {
	c.Flags().StringVarP(&t.config, "config", "c", "", "`file` with the configuration (default: fly.toml or another one that is here)")
}

// name returns the app that the flags name, or the one that the configuration does.
func (t *target) name() (bourse.AppName, error) {
	if t.app != "" {
		return bourse.AppName(t.app), bourse.AppName(t.app).Validate()
	}
	name, _, err := cli.ConfiguredApp(t.config)
	if err == nil && name == "" {
		return "", cli.NoApp()
	}
	return name, err
}

// vName is how a release is called.
func vName(r *release.Release) string { return fmt.Sprintf("v%d", r.Version) }
