package cli

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// orderFlags say what machine is wanted and where: the flags that run and
// quote share, named as flyctl's where it has them.
type orderFlags struct {
	app, region, name         string
	size                      sizeFlags
	image                     imageFlags
	warm                      warmFlags
	env, metadata, require    []string
	entrypoint, workdir, user string
	restart                   string
	stopSignal                string
	stopTimeout               string
	rm, skipLaunch            bool
	race                      int
	deadline                  time.Duration
	reservation               string
}

// sizeFlags say how large the machine is.
type sizeFlags struct {
	preset, memory, cpuKind, gpuKind string
	cpus, gpus                       int64
}

func (f *orderFlags) bind(s *shell, c *cobra.Command) {
	flags := c.Flags()
	s.bindApp(c, &f.app)
	flags.StringVarP(&f.region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default any)")
	flags.StringVarP(&f.name, "name", "n", "", "`name` of the machine, unique in its app (default: made up)")
	f.size.bind(flags)
	f.image.bind(flags)
	f.warm.bind(flags)
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment, `NAME=VALUE`; may be repeated")
	flags.StringArrayVarP(&f.metadata, "metadata", "m", nil, "metadata, `NAME=VALUE`; may be repeated")
	flags.StringArrayVar(&f.require, "require", nil, "what the worker must have, `NAME=VALUE`: slots=2 takes from a countable, zone=b must equal a label; may be repeated")
	flags.StringVar(&f.entrypoint, "entrypoint", "", "`program` put in front of the command")
	flags.StringVar(&f.workdir, "workdir", "", "working `directory`, absolute (default: the machine's or the image's own)")
	flags.StringVar(&f.user, "user", "", "`user[:group]` that the command runs as (default: the worker's own, or the image's)")
	flags.StringVar(&f.restart, "restart", "", "`policy` when the command ends by itself: no, on-failure or always (default on-failure)")
	flags.StringVar(&f.stopSignal, "kill-signal", "", "`signal` that asks it to stop (default SIGINT)")
	flags.StringVar(&f.stopTimeout, "kill-timeout", "", "`time` between that and SIGKILL (default 5s)")
	flags.BoolVar(&f.rm, "rm", false, "destroy the machine when its command has ended for good")
	flags.BoolVar(&f.skipLaunch, "skip-launch", false, "prepare the machine, do not start it")
	flags.IntVar(&f.race, "race", 0, "start on so `many` workers at once, keep the first")
	flags.StringVar(&f.reservation, "reservation", "", "take what is held for the reservation of this `id`")
	flags.DurationVar(&f.deadline, "deadline", 0, "filled or refused within this `time` (default 10s, of an image 1m)")
	s.completeRegions(c)
	fixed(c, "restart", "no", "on-failure", "always")
	fixed(c, "vm-cpu-kind", string(bourse.CPUShared), string(bourse.CPUPerformance))
}

func (f *sizeFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.preset, "vm-size", "", "`preset` such as shared-cpu-2x or performance-1x")
	flags.Int64Var(&f.cpus, "vm-cpus", 0, "`number` of cpus (default 1)")
	flags.StringVar(&f.memory, "vm-memory", "", "memory, a `size` such as 512MiB or 2GiB (default 256 MiB per shared cpu)")
	flags.StringVar(&f.cpuKind, "vm-cpu-kind", "", "`kind` of cpus, shared or performance (default shared)")
	flags.Int64Var(&f.gpus, "vm-gpus", 0, "`number` of gpus")
	flags.StringVar(&f.gpuKind, "vm-gpu-kind", "", "`kind` of gpu")
}

// guest gives the size; flags beside a preset change it.
func (f *sizeFlags) guest() (*bourse.Guest, error) {
	var g bourse.Guest
	if f.preset != "" {
		preset, err := bourse.ParseSize(f.preset)
		if err != nil {
			return nil, named("--vm-size", err)
		}
		g = preset
	}
	if f.cpus != 0 {
		if g.CPUs = f.cpus; f.memory == "" {
			g.MemoryMB = 0 // the preset's was for another number of cpus
		}
	}
	if f.memory != "" {
		m, err := parseMiB(f.memory)
		if err != nil {
			return nil, named("--vm-memory", err)
		}
		if g.MemoryMB = m; m == 0 {
			return nil, bourse.Errorf(bourse.CodeInvalid, "--vm-memory 0: use 1 MiB or more")
		}
	}
	if f.cpuKind != "" {
		g.CPUKind = bourse.CPUKind(f.cpuKind)
	}
	if f.gpus != 0 {
		g.GPUs = f.gpus
	}
	if f.gpuKind != "" {
		g.GPUKind = f.gpuKind
	}
	g = g.WithDefaults()
	return &g, g.Validate()
}

// request makes the API's request of the flags and arguments: the image, then
// the command.
func (f *orderFlags) request(args []string) (machinesapi.CreateMachine, error) {
	req := machinesapi.CreateMachine{
		Name: f.name, Region: f.region, SkipLaunch: f.skipLaunch, Race: f.race, Deadline: bourse.Duration(f.deadline),
		Reservation: bourse.ReservationID(f.reservation),
		Config:      &bourse.Config{Image: args[0], AutoDestroy: f.rm},
	}
	c := req.Config
	c.Init = bourse.Init{Cmd: args[1:], WorkingDir: f.workdir, User: f.user}
	if f.entrypoint != "" {
		c.Init.Entrypoint = []string{f.entrypoint}
	}
	if c.Image == bourse.ImageHost {
		localProgram(&c.Init)
	}
	var err error
	if c.Guest, err = f.size.guest(); err != nil {
		return req, err
	}
	if c.Env, err = parsePairs(f.env); err != nil {
		return req, named("--env", err)
	}
	if c.Metadata, err = parsePairs(f.metadata); err != nil {
		return req, named("--metadata", err)
	}
	if c.Requirements, err = parseRequirements(f.require); err != nil {
		return req, named("--require", err)
	}
	if err := errors.Join(f.policies(c), f.image.apply(c), f.warm.apply(c)); err != nil {
		return req, err
	}
	if f.name != "" {
		if err := bourse.ValidateMachineName(f.name); err != nil {
			return req, named("--name", err)
		}
	}
	if f.reservation != "" {
		if err := req.Reservation.Validate(); err != nil {
			return req, named("--reservation", err)
		}
	}
	if f.deadline < 0 || f.deadline > bourse.MaxWithin {
		return req, bourse.Errorf(bourse.CodeInvalid, "--deadline %s: use up to %s", f.deadline, bourse.MaxWithin)
	}
	normal := *c // the request keeps what was typed: the broker normalizes again
	return req, normal.Normalize()
}

func (f *orderFlags) policies(c *bourse.Config) error {
	if f.restart != "" {
		policy := bourse.RestartPolicy(f.restart)
		if policy == "on-fail" { // flyctl's short form
			policy = bourse.RestartOnFailure
		}
		c.Restart = &bourse.Restart{Policy: policy}
	}
	if f.stopSignal == "" && f.stopTimeout == "" {
		return nil
	}
	c.StopConfig = &bourse.StopConfig{}
	if f.stopSignal != "" {
		signal, err := bourse.ParseSignal(f.stopSignal)
		if err != nil {
			return named("--kill-signal", err)
		}
		c.StopConfig.Signal = signal
	}
	if f.stopTimeout != "" {
		timeout, err := parseSeconds(f.stopTimeout)
		if err != nil {
			return named("--kill-timeout", err)
		}
		c.StopConfig.Timeout = bourse.Duration(timeout)
	}
	return nil
}

func parseRequirements(list []string) (bourse.Requirements, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := bourse.Requirements{}
	for _, s := range list {
		name, r, err := parseRequirement(s)
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s is given twice", bourse.Quoted(name))
		}
		out[name] = r
	}
	return out, out.Validate()
}

// localProgram makes a program named relative to here ("./server") absolute
// where there is such a file: a machine does not run in this directory. The
// name stays as it is otherwise, because the worker may be another host.
func localProgram(i *bourse.Init) {
	list := i.Cmd
	if len(i.Entrypoint) > 0 {
		list = i.Entrypoint
	}
	if len(list) == 0 || filepath.IsAbs(list[0]) || !strings.Contains(list[0], "/") {
		return
	}
	path, err := filepath.Abs(list[0])
	if err != nil {
		return
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		list[0] = path
	}
}

// secondsUp gives whole seconds, a part counting as one.
func secondsUp(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
