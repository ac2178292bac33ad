// Package deploy implements the commands that deploy or change a whole app (deploy, rollback, releases, scale and
// restart) and those for a deploy's inputs (config and image). Commands that change an app build a plan with package
// deploy, record a release if the app's configuration changes, and execute the plan with package deploy/run through the
// public API.
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
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// deployFlags are the flags of "bourse deploy".
type deployFlags struct {
	target
	planFlags
	size                 place.Size
	sized                bool // at least one of the flags in sizeFlags is set
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

// planFlags configure how a plan is carried out.
type planFlags struct {
	only  bool // print the plan without executing it
	watch time.Duration
}

// New returns the command "bourse deploy".
func New(s *cli.Shell) *cobra.Command {
	var f deployFlags
	c := &cobra.Command{
		Use:   "deploy",
		Short: "Deploy an app according to its configuration",
		Long: `Deploy an app according to its configuration: machines are created, updated in
place and destroyed, a few at a time, and each has to become ready. If a machine
fails, and after Ctrl-C, all changes are undone; the last output of the failed
machine is shown first. The app is created if it does not exist.

The configuration is fly.toml, fly.json, fly.yaml or bourse.toml in this directory,
or the file that --config names. --plan shows what a deploy would do, and changes
nothing. It exits with status 0 if there is nothing to do, 2 if there are changes,
and 1 if the deploy is impossible.

To continue an interrupted deploy, use --resume; to undo it, bourse rollback.
See docs/deploy.md for details.`,
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
	flags.StringVarP(&f.app, "app", "a", s.Getenv("BOURSE_APP"), "`app`, instead of the one in the configuration; also BOURSE_APP")
	cli.CompleteFlag(c, "app", s.Apps)
	f.bindConfig(c)
	f.planFlags.bind(c)
	flags.StringVarP(&f.image, "image", "i", "", "`image` of all machines, instead of the one in the configuration")
	f.build.bind(c)
	f.registry.bind(flags)
	flags.StringVar(&f.strategy, "strategy", "", "`strategy` of the deploy: rolling, immediate, canary or bluegreen")
	flags.Float64Var(&f.maxUnavailable, "max-unavailable", 0, "`number` of machines of a group that may be unavailable at a time, or their share (default: 0.33)")
	flags.DurationVar(&f.wait, "wait-timeout", 0, "`time` limit for a machine to become ready (default: 5m)")
	flags.DurationVar(&f.commandTimeout, "release-command-timeout", 0, "`time` limit for the release command (default: 5m)")
	flags.BoolVar(&f.noCommand, "skip-release-command", false, "do not run the release command")
	flags.BoolVar(&f.smoke, "smoke-checks", true, "fail if a machine exits soon after its start")
	flags.BoolVar(&f.ha, "ha", true, "create a spare machine for each new group")
	flags.StringVarP(&f.region, "region", "r", "", "`region` of new machines, instead of primary_region")
	flags.StringVar(&f.region, "primary-region", "", "--region under the name that flyctl uses")
	_ = flags.MarkHidden("primary-region") // fails only if the flag does not exist
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable, `NAME=VALUE`, overriding the configuration; may be repeated")
	f.size.Bind(flags)
	flags.BoolVar(&f.reserve, "reserve", false, "reserve the capacity for all new machines first")
	flags.BoolVar(&f.keep, "no-rollback", false, "keep all changes if a machine fails")
	flags.BoolVar(&f.resume, "resume", false, "continue the newest release, which was interrupted")
	flags.StringVarP(&f.message, "message", "m", "", "`text` that describes the release")
	flags.StringVar(&f.org, "org", "", "`organization` of a new app (default: personal)")
	s.CompleteRegions(c)
	cli.CompleteFixed(c, "strategy", string(deploy.Rolling), string(deploy.Immediate), string(deploy.Canary), string(deploy.BlueGreen))
}

// watchFor is the default value of --watch-for. It is the same as flyctl's.
const watchFor = 10 * time.Second

func (f *planFlags) bind(c *cobra.Command) {
	c.Flags().BoolVar(&f.only, "plan", false, "show what would be done, and change nothing")
	c.Flags().DurationVar(&f.watch, "watch-for", watchFor, "`time` to watch each machine after it has become ready; a crash in that time is a failure")
}

// sizeFlags are the names of the flags that [place.Size] binds.
var sizeFlags = []string{"vm-size", "vm-cpus", "vm-memory", "vm-cpu-kind", "vm-gpus", "vm-gpu-kind"}

func sizeGiven(c *cobra.Command) bool {
	for _, name := range sizeFlags {
		if c.Flags().Changed(name) {
			return true
		}
	}
	return false
}

// Exit statuses of a command with --plan.
const (
	planErrors  = 1
	planChanges = 2
)

// errChanges makes a command with --plan exit with planChanges if the plan has steps. No
// message is printed.
const errChanges = cli.ExitStatus(planChanges)

// planExit makes a command with --plan that failed with err exit with planErrors. It returns errChanges, and the
// error of a canceled command, unchanged.
func planExit(err error) error {
	if err == nil || errors.Is(err, errChanges) {
		return err
	}
	if bourse.CodeOf(err) == bourse.CodeCanceled {
		return err
	}
	return cli.WithExitStatus(err, planErrors)
}

// target identifies the app that a command changes.
type target struct {
	app    string
	config string // name of the configuration file; "" means the one in the working directory
}

// bind adds the flags --app and --config to a command that uses the configuration only to find the app's name.
func (t *target) bind(s *cli.Shell, c *cobra.Command) *cli.AppFlag {
	t.bindConfig(c)
	return s.BindApp(c, &t.app).Required(c, &t.config)
}

func (t *target) bindConfig(c *cobra.Command) {
	c.Flags().StringVarP(&t.config, "config", "c", "", "configuration `file` (default: fly.toml or another one in this directory)")
}

// name returns the app's name from the flags or the configuration.
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

// versionName formats a release's version, for example "v4".
func versionName(r *release.Release) string { return fmt.Sprintf("v%d", r.Version) }
