// Package place is what the commands that place orders have in common: the flags
// for what is wanted, how a decision is shown, and what to try when an order
// was refused.
package place

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Flags describe what machine is wanted and where: the flags that run and
// quote share, named as flyctl's where it has them.
type Flags struct {
	App, Region, name         string
	size                      Size
	image                     imageFlags
	warm                      warmFlags
	env, metadata, require    []string
	entrypoint, workdir, user string
	restart, schedule         string
	stopSignal                string
	stopTimeout               string
	rm, SkipLaunch            bool
	Standbys                  []string // machines that it stands by for; then it is not launched
	race                      int
	deadline                  time.Duration
	reservation               string
	Volume                    string // VOLUME:/PATH; the caller resolves the volume, as only the API knows which id a name means
}

// flagGroups divides the flags into groups in a command's help.
var flagGroups = []cli.FlagGroup{
	{Title: "Where it runs", Flags: []string{"region", "require", "reservation", "standby-for", "race", "deadline", "order-id"}},
	{Title: "Its size", Flags: []string{"vm-size", "vm-cpus", "vm-cpu-kind", "vm-memory", "vm-gpus", "vm-gpu-kind", "rootfs-size"}},
	{Title: "Its program", Flags: []string{"entrypoint", "env", "file-literal", "file-local", "read-only", "tty", "user", "vm-runtime", "volume", "workdir"}},
	{Title: "When it starts and stops", Flags: []string{"kill-signal", "kill-timeout", "restart", "rm", "schedule", "skip-launch"}},
	{Title: "Requests and checks", Flags: []string{"autostart", "autostop", "check", "min-machines-running", "port"}},
	{Title: "Tasks", Flags: []string{"task", "task-concurrency", "task-port", "task-protocol", "task-timeout"}},
}

// Bind adds the flags to a command.
func (f *Flags) Bind(s *cli.Shell, c *cobra.Command) {
	flags := c.Flags()
	s.BindApp(c, &f.App)
	flags.StringVarP(&f.Region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default any)")
	flags.StringVarP(&f.name, "name", "n", "", "`name` of the machine, unique in its app (default: made up)")
	f.size.Bind(flags)
	f.image.bind(flags)
	f.warm.bind(flags)
	flags.StringVarP(&f.Volume, "volume", "v", "", "mount a volume, `VOLUME:/PATH`: its id, or its name in the app")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment, `NAME=VALUE`; may be repeated")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "metadata, `NAME=VALUE`; may be repeated")
	flags.StringArrayVar(&f.require, "require", nil, "what the worker must have, `NAME=VALUE`: slots=2 takes from a countable, zone=b must equal a label; may be repeated")
	flags.StringVar(&f.entrypoint, "entrypoint", "", "`program` put in front of the command")
	flags.StringVar(&f.workdir, "workdir", "", "working `directory`, absolute (default: the machine's or the image's own)")
	flags.StringVar(&f.user, "user", "", "`user[:group]` that the command runs as (default: the worker's own, or the image's)")
	flags.StringVar(&f.restart, "restart", "", "`policy` when the command ends by itself: no, on-failure or always (default on-failure)")
	flags.StringVar(&f.schedule, "schedule", "", "start it again when it has stopped: `hourly`, daily, weekly or monthly, from now on")
	flags.StringVar(&f.stopSignal, "kill-signal", "", "`signal` that asks it to stop (default SIGINT)")
	flags.StringVar(&f.stopTimeout, "kill-timeout", "", "`time` between that and SIGKILL (default 5s)")
	flags.BoolVar(&f.rm, "rm", false, "destroy the machine when its command has ended for good")
	flags.BoolVar(&f.SkipLaunch, "skip-launch", false, "prepare the machine, do not start it")
	flags.StringSliceVar(&f.Standbys, "standby-for", nil, "prepare the machine, and start it when the worker of this `machine` is lost; may be repeated")
	flags.IntVar(&f.race, "race", 0, "start on so `many` workers at once, keep the first")
	flags.StringVar(&f.reservation, "reservation", "", "take what is held for the reservation of this `id`")
	flags.DurationVar(&f.deadline, "deadline", 0, "filled or refused within this `time` (default 10s, of an image 1m)")
	cli.GroupFlags(c, flagGroups...)
	s.CompleteRegions(c)
	cli.CompleteFixed(c, "vm-size", sizes...)
	cli.CompleteFixed(c, "schedule", string(bourse.Hourly), string(bourse.Daily), string(bourse.Weekly), string(bourse.Monthly))
	cli.CompleteFixed(c, "restart", "no", "on-failure", "always")
	cli.CompleteFixed(c, "vm-cpu-kind", string(bourse.CPUShared), string(bourse.CPUPerformance))
}

// Remove reports whether the machine is to be destroyed when its command has
// ended for good.
func (f *Flags) Remove() bool { return f.rm }

// Request makes the API's request of the flags and arguments: the image, then
// the command.
func (f *Flags) Request(args []string) (machinesapi.CreateMachine, error) {
	if err := f.image.when.taken(args[0]); err != nil {
		return machinesapi.CreateMachine{}, err
	}
	req := machinesapi.CreateMachine{
		Name: f.name, Region: f.Region, SkipLaunch: f.SkipLaunch, Race: f.race, Deadline: bourse.Duration(f.deadline),
		Reservation: bourse.ReservationID(f.reservation),
		Config:      &bourse.Config{Image: args[0], AutoDestroy: f.rm},
	}
	c := req.Config
	c.Init = bourse.Init{Cmd: args[1:], WorkingDir: f.workdir, User: f.user}
	if f.entrypoint != "" {
		c.Init.Entrypoint = []string{f.entrypoint}
	}
	if c.ImageKind() == bourse.HostImage {
		LocalProgram(&c.Init)
	}
	if c.ImageKind() != bourse.RegistryImage && len(c.Init.Command()) == 0 {
		return req, cli.Hint(bourse.Errorf(bourse.CodeInvalid, "image %s requires a command", c.Image),
			"the command at the end: … "+c.Image+" -- COMMAND")
	}
	var err error
	for _, id := range f.Standbys {
		c.Standbys = append(c.Standbys, bourse.MachineID(id))
	}
	if err := bourse.ValidateStandbys(c.Standbys); err != nil {
		return req, cli.FlagError("--standby-for", err)
	}
	if c.Guest, err = f.size.Guest(); err != nil {
		return req, err
	}
	if c.Env, err = cli.ParsePairs(f.env); err != nil {
		return req, cli.FlagError("--env", err)
	}
	if c.Metadata, err = cli.ParsePairs(f.metadata); err != nil {
		return req, cli.FlagError("--metadata", err)
	}
	if c.Requirements, err = ParseRequirements(f.require); err != nil {
		return req, cli.FlagError("--require", err)
	}
	if err := errors.Join(f.policies(c), f.image.apply(c), f.warm.apply(c)); err != nil {
		return req, err
	}
	if f.name != "" {
		if err := bourse.ValidateMachineName(f.name); err != nil {
			return req, cli.FlagError("--name", err)
		}
	}
	if f.reservation != "" {
		if err := req.Reservation.Validate(); err != nil {
			return req, cli.FlagError("--reservation", err)
		}
	}
	if f.deadline < 0 || f.deadline > bourse.MaxWithin {
		return req, bourse.Errorf(bourse.CodeInvalid, "--deadline %s: use up to %s", f.deadline, bourse.MaxWithin)
	}
	normal := *c // the request keeps what was typed: the broker normalizes again
	return req, normal.Normalize()
}

func (f *Flags) policies(c *bourse.Config) error {
	if f.restart != "" {
		policy := bourse.RestartPolicy(f.restart)
		if policy == "on-fail" { // flyctl's short form
			policy = bourse.RestartOnFailure
		}
		c.Restart = &bourse.Restart{Policy: policy}
	}
	c.Schedule = bourse.Schedule(f.schedule)
	if c.Schedule.Validate() != nil {
		return bourse.Errorf(bourse.CodeInvalid, "--schedule %s: use hourly, daily, weekly or monthly", bourse.Quoted(f.schedule))
	}
	if f.stopSignal == "" && f.stopTimeout == "" {
		return nil
	}
	c.StopConfig = &bourse.StopConfig{}
	if f.stopSignal != "" {
		signal, err := bourse.ParseSignal(f.stopSignal)
		if err != nil {
			return cli.FlagError("--kill-signal", err)
		}
		c.StopConfig.Signal = signal
	}
	if f.stopTimeout != "" {
		timeout, err := cli.ParseSeconds(f.stopTimeout)
		if err != nil {
			return cli.FlagError("--kill-timeout", err)
		}
		c.StopConfig.Timeout = bourse.Duration(timeout)
	}
	return nil
}
