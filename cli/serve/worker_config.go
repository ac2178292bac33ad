package serve

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
)

// WorkerConfig is the configuration of "bourse serve worker".
type WorkerConfig struct {
	ServerConfig
	Data          string          // data directory; required
	Name          bourse.WorkerID // the server's name; required; fixed at the first start
	Capacity      Capacity
	Host          HostConfig
	Pull          PullConfig
	Ports         cli.PortRange // ports that are assigned to machines as $PORT; the zero value means the worker's default
	AllowHost     bool          // whether to accept orders with the image "host"
	RemoveUnknown bool          // whether to remove machines and volumes on this host that are not in the store
	NoLimits      bool          // whether to ignore the limits of machines with the image "host"
	Ephemeral     bool          // whether to destroy all machines and stop all processes when the daemon stops
	Standby       time.Duration // how long another worker may be silent before this worker starts the standbys of its machines
	IdleAfter     time.Duration // idle time after which a machine is stopped or suspended if its config requests that
	allowHost     *bool         // value of --allow-host; nil means that AllowHost contains the default
}

// Bounds of --idle-after. The minimum is about the time that a machine takes to start.
const (
	minIdleAfter = 100 * time.Millisecond
	maxIdleAfter = 24 * time.Hour
)

// Capacity is the part of a worker's capacity that its operator has configured. The
// worker determines the rest from the host.
type Capacity struct {
	CPUs       bourse.MilliCPU    // 0 means all cores of the host
	Memory     bourse.MiB         // 0 means nine tenths of the host's memory
	Disk       bourse.MiB         // 0 means the free space
	GPUs       bourse.Amounts     // number of GPUs, by kind
	Resources  bourse.Amounts     // amounts of other countable resources, by name
	Labels     map[string]string  //
	Overcommit map[string]float64 // overcommit factors, by resource; "shared" stands for shared CPUs
}

// bind binds the flags to the config.
func (c *WorkerConfig) bind(flags *pflag.FlagSet) {
	b := c.ServerConfig.bind(flags, bourse.RoleWorker)
	c.Host.bind(b)
	c.Pull.bind(b)
	flags.StringVarP((*string)(&c.Region), "region", "r", "", "`region` of this worker, such as gru (required)")
	flags.StringVarP((*string)(&c.Name), "name", "n", "", "`id` of this worker, unique in the cluster and fixed at its first start (required)")
	flags.StringVar(&c.Data, "data", "", "data `directory` (required)")
	bindParsed(b, &c.Capacity.CPUs, "cpus", "", "`number` of cores to offer (default: all of the host's)", cli.ParseCPUs)
	bindParsed(b, &c.Capacity.Memory, "memory", "", "memory `size` to offer, such as 8GiB (default: nine tenths of the host's)", cli.ParseMiB)
	bindParsed(b, &c.Capacity.Disk, "disk", "", "disk `size` to offer, such as 100GiB (default: the free space)", cli.ParseMiB)
	bindAll(b, &c.Capacity.GPUs, "gpus", "GPUs to offer, `KIND=N`; may be repeated", cli.ParseCounts)
	bindAll(b, &c.Capacity.Resources, "resource", "countable resource to offer, `NAME=N` such as slots=10; may be repeated", cli.ParseCounts)
	bindAll(b, &c.Capacity.Labels, "label", "label that orders may require, `NAME=VALUE` such as zone=b; may be repeated", cli.ParsePairs)
	bindEach(b, "overcommit", "overcommit factor of a resource, `NAME=F`; shared=8 offers 8 shared CPUs per core; may be repeated", c.Capacity.addOvercommit)
	bindParsed(b, &c.Ports, "ports", "", "`range` of the ports that are assigned to machines as $PORT (default: 20000-29999)", cli.ParsePorts)
	bindOptional(b, &c.allowHost, "allow-host", "accept orders with image host, which run commands directly on this host (default: true if the worker is only accessible on loopback)")
	flags.BoolVar(&c.RemoveUnknown, "forget-machines", false, "remove machines and volumes on this host that are missing from the data directory; without this flag, the worker refuses to start if there are any")
	flags.BoolVar(&c.NoLimits, "no-limits", false, "do not enforce the limits of machines with image host, and show this in the worker's labels")
	flags.DurationVar(&c.Standby, "standby-after", 10*time.Second, "`time` that another worker may be silent before this worker starts the standbys of its machines")
	flags.DurationVar(&c.IdleAfter, "idle-after", time.Minute, "idle `time` after which a machine is stopped or suspended if its services request it (autostop)")
	flags.BoolVar(&c.Ephemeral, "ephemeral", false, "destroy all machines and stop all processes when the daemon stops")
}

// addOvercommit parses NAME=FACTOR and adds the factor.
func (c *Capacity) addOvercommit(s string) error {
	name, factor, err := cli.ParseFactor(s)
	if c.Overcommit == nil {
		c.Overcommit = map[string]float64{}
	}
	c.Overcommit[name] = factor
	return err
}

// complete completes the config once the flags are parsed. A worker that is only
// accessible from this host allows the image host by default.
func (c *WorkerConfig) complete(flags *pflag.FlagSet) []error {
	problems := c.ServerConfig.completeServer(flags, bourse.RoleWorker, &c.Name)
	c.viewIn(c.Data)
	if c.AllowHost = c.Listen.Addr().IsLoopback() && c.NATS.Local(); c.allowHost != nil {
		c.AllowHost = *c.allowHost
	}
	return problems
}

func (c *WorkerConfig) problems() []error {
	problems := c.serverProblems([]admission.Safeguard{admission.TLS}, nil)
	problems = append(problems, c.Pull.problems(&c.ServerConfig)...)
	if c.Data == "" {
		problems = append(problems, invalid("data", "--data is required: the directory in which the worker stores its machines"))
	}
	if c.Region == "" {
		problems = append(problems, invalid("region", "--region is required: the worker's region"))
	}
	if c.Name == "" {
		problems = append(problems, invalid("name", "--name is required: the worker's id"))
	} else {
		problems = append(problems, flagError("name", c.Name.Validate()))
	}
	if c.Capacity.CPUs > bourse.MaxCPUs*1000 {
		problems = append(problems, invalid("cpus", "--cpus: at most %d", bourse.MaxCPUs))
	}
	if c.Standby < time.Second || c.Standby > bourse.LostAfter {
		problems = append(problems, invalid("standby-after", "--standby-after %s: use 1s to %s", c.Standby, bourse.LostAfter))
	}
	if c.IdleAfter < minIdleAfter || c.IdleAfter > maxIdleAfter {
		problems = append(problems, invalid("idle-after", "--idle-after %s: use %s to %s", c.IdleAfter, minIdleAfter, maxIdleAfter))
	}
	for name := range c.Capacity.Labels {
		problems = append(problems, flagError("label", bourse.ValidateRequirementName(name)))
	}
	return problems
}

func (c *WorkerConfig) settings() any {
	s := *c
	s.ServerConfig, s.allowHost = c.ServerConfig.settings(), nil
	return s
}
