package serve

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// WorkerConfig is the whole configuration of "bourse serve worker".
type WorkerConfig struct {
	ServerConfig
	Data      string          // directory; required
	Name      bourse.WorkerID // required; fixed at the first start
	Capacity  Capacity
	Host      HostConfig
	Pull      PullConfig
	Ports     cli.PortRange // for $PORT; zero: the worker's default
	AllowHost bool          // take orders for image "host"
	Forget    bool          // remove machines that the store does not know
	NoLimits  bool          // do not enforce limits of machines of image "host"
	Ephemeral bool          // at the end destroy every machine and leave no process
	Standby   time.Duration // patience of its spares; 0: the worker's default
	IdleAfter time.Duration // for which nobody uses a machine before it is stopped, where its config asks for that
}

// Bounds of --idle-after: less than the first is less than a start takes.
const (
	idleLeast = 100 * time.Millisecond
	idleMost  = 24 * time.Hour
)

// Capacity is what the operator states of a worker. What is not stated, the
// worker asks the host.
type Capacity struct {
	CPUs       bourse.MilliCPU    // 0: not stated
	Memory     bourse.MiB         // 0: not stated
	Disk       bourse.MiB         // 0: not stated
	GPUs       bourse.Amounts     // by kind
	Resources  bourse.Amounts     // countables
	Labels     map[string]string  //
	Overcommit map[string]float64 // factor by resource; "shared" means shared cpus
}

// bind binds the flags to the config.
func (c *WorkerConfig) bind(flags *pflag.FlagSet) {
	b := c.ServerConfig.bind(flags, "127.0.0.1:0")
	c.Host.bind(b)
	c.Pull.bind(b)
	flags.StringVarP((*string)(&c.Region), "region", "r", "", "the `region` that this worker is in, such as gru (required)")
	flags.StringVarP((*string)(&c.Name), "name", "n", "", "the worker's `id`, unique in the cluster and fixed at its first start (required)")
	flags.StringVar(&c.Data, "data", "", "data `directory` (required)")
	reads(b, &c.Capacity.CPUs, "cpus", "", "`cores` to sell (default: what the host has)", cli.ParseCPUs)
	reads(b, &c.Capacity.Memory, "memory", "", "memory to sell, a `size` such as 8GiB (default: nine tenths of the host's)", cli.ParseMiB)
	reads(b, &c.Capacity.Disk, "disk", "", "disk to sell, a `size` such as 100GiB (default: what is free)", cli.ParseMiB)
	readsAll(b, &c.Capacity.GPUs, "gpus", "gpus to sell, `KIND=N`; may be repeated", cli.ParseCounts)
	readsAll(b, &c.Capacity.Resources, "resource", "anything countable to sell, `NAME=N` such as slots=10; may be repeated", cli.ParseCounts)
	readsAll(b, &c.Capacity.Labels, "label", "a fact that orders may require, `NAME=VALUE` such as zone=b; may be repeated", cli.ParsePairs)
	readsEach(b, "overcommit", "sell a resource so many times over, `NAME=F`; shared=8 sells 8 shared cpus per core", c.Capacity.addOvercommit)
	reads(b, &c.Ports, "ports", "", "`range` of the machines' $PORT, one each (default 20000-29999)", cli.ParsePorts)
	flags.BoolVar(&c.AllowHost, "allow-host", false, "take orders for image host: commands of this very host (default true on loopback)")
	flags.BoolVar(&c.Forget, "forget-machines", false, "remove machines and volumes of this host that the data directory does not know; without it their presence is a reason not to start")
	flags.BoolVar(&c.NoLimits, "no-limits", false, "do not enforce the limits of machines of image host, and show that in the worker's labels")
	flags.DurationVar(&c.Standby, "standby-after", 10*time.Second, "`time` for which a worker is not heard from before machines here start that stand by for its machines")
	flags.DurationVar(&c.IdleAfter, "idle-after", time.Minute, "`time` for which nobody uses a machine before it is stopped or suspended, if its services say so (autostop)")
	flags.BoolVar(&c.Ephemeral, "ephemeral", false, "at the end destroy every machine and leave no process behind")
}

// addOvercommit notes a factor: NAME=F.
func (c *Capacity) addOvercommit(s string) error {
	name, factor, err := cli.ParseFactor(s)
	if c.Overcommit == nil {
		c.Overcommit = map[string]float64{}
	}
	c.Overcommit[name] = factor
	return err
}

// settle completes the config once the flags are parsed. A worker that only this host
// reaches allows image host by default.
func (c *WorkerConfig) settle(flags *pflag.FlagSet) error {
	if err := c.ServerConfig.settle(flags, bourse.RoleWorker, &c.Name); err != nil {
		return err
	}
	c.viewIn(c.Data)
	if !flags.Changed("allow-host") {
		c.AllowHost = c.Listen.Addr().IsLoopback() && c.NATS.Local()
	}
	return nil
}

// Validate reports every problem of the config at once, as CodeInvalid.
func (c *WorkerConfig) Validate() error {
	problems := c.problems([]admission.Safeguard{admission.TLS}, nil)
	problems = append(problems, c.Pull.problems(&c.ServerConfig)...)
	if c.Data == "" {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--data is required: the directory in which the worker keeps its machines"))
	}
	if c.Region == "" {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--region is required: where the worker is"))
	}
	if c.Name == "" {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--name is required: the worker's id"))
	} else {
		problems = append(problems, cli.FlagError("--name", c.Name.Validate()))
	}
	if c.Capacity.CPUs > bourse.MaxCPUs*1000 {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--cpus: at most %d", bourse.MaxCPUs))
	}
	if c.Standby < time.Second || c.Standby > bourse.LostAfter {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--standby-after %s: use 1s to %s", c.Standby, bourse.LostAfter))
	}
	if c.IdleAfter < idleLeast || c.IdleAfter > idleMost {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--idle-after %s: use %s to %s", c.IdleAfter, idleLeast, idleMost))
	}
	for name := range c.Capacity.Labels {
		problems = append(problems, cli.FlagError("--label", bourse.ValidateRequirementName(name)))
	}
	return cli.JoinProblems(problems)
}
