// Package place contains code that is common to commands that place orders: flags, the
// output of decisions, and hints after refusals.
package place

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Flags are the flags that "machine run" and "quote" share. Flags that also exist in
// flyctl have the same names.
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
	Standbys                  []string // machines for which the new machine is a standby; a standby is not launched
	race                      int
	deadline                  time.Duration
	reservation               string
	Volume                    string // VOLUME:/PATH; the caller replaces a volume's name with its id
}

// flagGroups defines the groups of flags in a command's help.
var flagGroups = []cli.FlagGroup{
	{Title: "Placement flags", Flags: []string{"region", "require", "reservation", "standby-for", "race", "deadline", "order-id"}},
	{Title: "Size flags", Flags: []string{"vm-size", "vm-cpus", "vm-cpu-kind", "vm-memory", "vm-gpus", "vm-gpu-kind", "rootfs-size"}},
	{Title: "Program flags", Flags: []string{"allow-emulation", "entrypoint", "env", "file-literal", "file-local", "read-only", "tty", "user", "vm-runtime", "volume", "workdir"}},
	{Title: "Lifecycle flags", Flags: []string{"kill-signal", "kill-timeout", "restart", "rm", "schedule", "skip-launch"}},
	{Title: "Service and check flags", Flags: []string{"autostart", "autostop", "check", "min-machines-running", "port"}},
	{Title: "Task flags", Flags: []string{"task", "task-concurrency", "task-port", "task-protocol", "task-timeout"}},
}

// Bind adds the flags to a command.
func (f *Flags) Bind(s *cli.Shell, c *cobra.Command) {
	flags := c.Flags()
	s.BindApp(c, &f.App)
	flags.StringVarP(&f.Region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default: any)")
	flags.StringVarP(&f.name, "name", "n", "", "`name` of the machine, unique in its app (default: generated)")
	f.size.Bind(flags)
	f.image.bind(flags)
	f.warm.bind(flags)
	flags.StringVarP(&f.Volume, "volume", "v", "", "volume to mount, `VOLUME:/PATH`, given by id or name")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable, `NAME=VALUE`; may be repeated")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "metadata, `NAME=VALUE`; may be repeated")
	flags.StringArrayVar(&f.require, "require", nil, "requirement on the worker, `NAME=VALUE`: slots=2 takes 2 of a countable resource, zone=b requires a label; may be repeated")
	flags.StringVar(&f.entrypoint, "entrypoint", "", "`program` to put before the command")
	flags.StringVar(&f.workdir, "workdir", "", "absolute working `directory` (default: the image's, or the machine's own directory)")
	flags.StringVar(&f.user, "user", "", "`user[:group]` to run the command as (default: the image's, or the worker's own user)")
	flags.StringVar(&f.restart, "restart", "", "restart `policy` when the command exits: no, on-failure or always (default: on-failure)")
	flags.StringVar(&f.schedule, "schedule", "", "`interval` at which the machine is started again after it has stopped: hourly, daily, weekly or monthly")
	flags.StringVar(&f.stopSignal, "kill-signal", "", "`signal` to stop the machine with (default: SIGINT)")
	flags.StringVar(&f.stopTimeout, "kill-timeout", "", "`time` between that signal and SIGKILL (default: 5s)")
	flags.BoolVar(&f.rm, "rm", false, "destroy the machine once its command has ended and is not restarted")
	flags.BoolVar(&f.SkipLaunch, "skip-launch", false, "create the machine without starting it")
	flags.StringSliceVar(&f.Standbys, "standby-for", nil, "create the machine as a standby that starts when the worker of this `machine` is lost; may be repeated")
	flags.IntVar(&f.race, "race", 0, "`number` of workers on which to start the machine; the first to start is kept")
	flags.StringVar(&f.reservation, "reservation", "", "`id` of a reservation whose capacity the machine uses")
	flags.DurationVar(&f.deadline, "deadline", 0, "`time` within which the order is filled or refused (default: 10s, or 1m with an image)")
	cli.GroupFlags(c, flagGroups...)
	s.CompleteRegions(c)
	cli.CompleteFixed(c, "vm-size", sizes...)
	cli.CompleteFixed(c, "schedule", string(bourse.Hourly), string(bourse.Daily), string(bourse.Weekly), string(bourse.Monthly))
	cli.CompleteFixed(c, "restart", "no", "on-failure", "always")
	cli.CompleteFixed(c, "vm-cpu-kind", string(bourse.CPUShared), string(bourse.CPUPerformance))
}

// Remove reports whether the machine is to be destroyed once its command has exited and
// will not be restarted.
func (f *Flags) Remove() bool { return f.rm }

// Request builds the API request from the flags and arguments. args contains the image,
// followed by the command.
func (f *Flags) Request(args []string) (machinesapi.CreateMachine, error) {
	if err := f.image.when.rejectImage(args[0]); err != nil {
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
			"a command at the end: … "+c.Image+" -- COMMAND")
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
	if f.deadline < 0 || f.deadline > bourse.MaxOrderTimeout {
		return req, bourse.Errorf(bourse.CodeInvalid, "--deadline %s: use up to %s", f.deadline, bourse.MaxOrderTimeout)
	}
	normal := *c // validate a copy, because the broker normalizes the request itself
	return req, normal.Normalize()
}

func (f *Flags) policies(c *bourse.Config) error {
	if f.restart != "" {
		policy := bourse.RestartPolicy(f.restart)
		if policy == "on-fail" { // flyctl's short form of on-failure
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
