package cli

import (
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
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
	FirstPort uint16 // of the range for $PORT; 0: the worker's default
	LastPort  uint16
	AllowHost bool // take orders for image "host"
	Forget    bool // remove machines that the store does not know
	NoLimits  bool // do not enforce limits of machines of image "host"
	Ephemeral bool // at the end destroy every machine and leave no process
}

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

// workerFlags are the flags of a WorkerConfig as they are typed.
type workerFlags struct {
	server             serverFlags
	host               hostFlags
	pull               pullFlags
	data, name, ports  string
	cpus, memory, disk string
	gpus, resources    []string
	labels, overcommit []string
	allowHost          bool
	ephemeral          bool
	forget             bool
	noLimits           bool
}

func (f *workerFlags) bind(flags *pflag.FlagSet) {
	f.server.bind(flags, "127.0.0.1:0")
	f.host.bind(flags)
	f.pull.bind(flags)
	flags.StringVarP(&f.server.region, "region", "r", "", "the `region` that this worker stands in, such as gru (required)")
	flags.StringVarP(&f.name, "name", "n", "", "the worker's `id`, unique in the cluster and fixed at its first start (required)")
	flags.StringVar(&f.data, "data", "", "data `directory` (required)")
	flags.StringVar(&f.cpus, "cpus", "", "`cores` to sell (default: what the host has)")
	flags.StringVar(&f.memory, "memory", "", "memory to sell, a `size` such as 8GiB (default: nine tenths of the host's)")
	flags.StringVar(&f.disk, "disk", "", "disk to sell, a `size` such as 100GiB (default: what is free)")
	flags.StringArrayVar(&f.gpus, "gpus", nil, "gpus to sell, `KIND=N`; may be repeated")
	flags.StringArrayVar(&f.resources, "resource", nil, "anything countable to sell, `NAME=N` such as slots=10; may be repeated")
	flags.StringArrayVar(&f.labels, "label", nil, "a fact that orders may require, `NAME=VALUE` such as zone=b; may be repeated")
	flags.StringArrayVar(&f.overcommit, "overcommit", nil, "sell a resource so many times over, `NAME=F`; shared=8 sells 8 shared cpus per core")
	flags.StringVar(&f.ports, "ports", "", "`range` of the machines' $PORT, one each (default 20000-29999)")
	flags.BoolVar(&f.allowHost, "allow-host", false, "take orders for image host: commands of this very host (default true on loopback)")
	flags.BoolVar(&f.forget, "forget-machines", false, "remove machines and volumes of this host that the data directory does not know; without it their presence is a reason not to start")
	flags.BoolVar(&f.noLimits, "no-limits", false, "do not enforce the limits of machines of image host, and say so in the worker's labels")
	flags.BoolVar(&f.ephemeral, "ephemeral", false, "at the end destroy every machine and leave no process behind")
}

// read turns the flags into a config. hostSaid tells whether --allow-host was
// given; without it a worker that only this host reaches allows it.
func (f *workerFlags) read(hostSaid bool) WorkerConfig {
	c := WorkerConfig{
		ServerConfig: f.server.read(),
		Data:         f.data, Name: bourse.WorkerID(f.name),
		AllowHost: f.allowHost, Ephemeral: f.ephemeral, Forget: f.forget, NoLimits: f.noLimits,
	}
	c.viewIn(c.Data)
	if !hostSaid {
		c.AllowHost = c.Listen.Addr().IsLoopback() && c.NATS.Local()
	}
	keep := func(flag string, err error) {
		if err != nil {
			c.rejections = append(c.rejections, named(flag, err))
		}
	}
	c.Host = f.host.read(keep)
	c.Pull = f.pull.read(keep)
	var err error
	if f.cpus != "" {
		c.Capacity.CPUs, err = parseCPUs(f.cpus)
		keep("--cpus", err)
	}
	if f.memory != "" {
		c.Capacity.Memory, err = parseMiB(f.memory)
		keep("--memory", err)
	}
	if f.disk != "" {
		c.Capacity.Disk, err = parseMiB(f.disk)
		keep("--disk", err)
	}
	c.Capacity.GPUs, err = parseCounts(f.gpus)
	keep("--gpus", err)
	c.Capacity.Resources, err = parseCounts(f.resources)
	keep("--resource", err)
	c.Capacity.Labels, err = parsePairs(f.labels)
	keep("--label", err)
	for _, s := range f.overcommit {
		name, factor, err := parseFactor(s)
		keep("--overcommit", err)
		if c.Capacity.Overcommit == nil {
			c.Capacity.Overcommit = map[string]float64{}
		}
		c.Capacity.Overcommit[name] = factor
	}
	if f.ports != "" {
		r, err := parsePorts(f.ports)
		keep("--ports", err)
		c.FirstPort, c.LastPort = r.First, r.Last
	}
	return c
}

// Validate reports every problem of the config at once, as CodeInvalid.
func (c *WorkerConfig) Validate() error {
	problems := c.problems([]admission.Safeguard{admission.TLS}, nil)
	problems = append(problems, c.Pull.problems(&c.ServerConfig)...)
	if c.Data == "" {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--data is required: the directory in which the worker keeps its machines"))
	}
	if c.Region == "" {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--region is required: where the worker stands"))
	}
	if c.Name == "" {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--name is required: the worker's id"))
	} else {
		problems = append(problems, named("--name", c.Name.Validate()))
	}
	if c.Capacity.CPUs > bourse.MaxCPUs*1000 {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--cpus: at most %d", bourse.MaxCPUs))
	}
	for name := range c.Capacity.Labels {
		problems = append(problems, named("--label", bourse.ValidateRequirementName(name)))
	}
	return joined(problems)
}
