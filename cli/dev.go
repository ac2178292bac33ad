package cli

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

// devConfig is the whole configuration of "bourse dev".
type devConfig struct {
	regions    []string
	workers    int // of each region
	data       string
	api        string
	cpus       string // of each worker, as the worker's flag has it
	memory     string
	containerd string // as the worker's flag has it
	fabric     string // direct or nats
	readyFile  string
	logLevel   string
	inner      bool // this is the process that runs the cluster; see dev_keeper.go
	temporary  bool // data is to be removed at the end
}

// The fabrics of a dev cluster.
const (
	fabricDirect = "direct"
	fabricNATS   = "nats"
)

// maxDevWorkers is what one host's processes and ports bear.
const maxDevWorkers = 64

func (s *shell) dev() *cobra.Command {
	var d devConfig
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster on this host, until Ctrl-C",
		Long: `Run a whole cluster on this host: workers in several regions and a broker, each a
process of its own, so that killing one is a real failure; it is started again.
Nothing needs to be installed, and nothing is left behind: Ctrl-C ends machines,
servers and files. With --data the servers' files stay; machines end all the same.`,
		Example: `  bourse dev
  bourse dev --regions gru,mad --workers 3 --api 127.0.0.1:0
  bourse dev --fabric nats   # over a NATS server: no worker listens anywhere`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := d.validate(); err != nil {
				return err
			}
			if d.inner {
				return s.runDev(c.Context(), d)
			}
			return s.keepDev(c.Context(), d)
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&d.regions, "regions", []string{"gru", "mad", "ord"}, "`regions`, comma separated")
	flags.IntVar(&d.workers, "workers", 2, "`number` of workers in each region")
	flags.StringVar(&d.fabric, "fabric", fabricDirect, "how servers reach one another: direct, or `nats`, over a NATS server that is part of the cluster")
	flags.StringVar(&d.containerd, "containerd", ContainerdAuto, "`address` of containerd's socket, for machines of images; auto: the usual one if it is there; none: no such machines")
	flags.StringVar(&d.data, "data", "", "`directory` for the servers' files, kept at the end (default: a temporary one)")
	flags.StringVar(&d.api, "api", DefaultAPI, "`IP:PORT` of the broker's API; port 0 means any free one")
	flags.StringVar(&d.cpus, "cpus", "4", "`cores` that each worker sells; what the host really has is not asked")
	flags.StringVar(&d.memory, "memory", "4GiB", "memory, a `size`, that each worker sells")
	flags.StringVar(&d.readyFile, "ready-file", "", "write {api, pid, data, servers, token_file} as JSON to this `file` once ready, and again when a server was restarted")
	flags.StringVar(&d.logLevel, "log-level", "warn", "`level` that the servers log: debug, info, warn or error")
	flags.BoolVar(&d.inner, "inner", false, "")
	flags.BoolVar(&d.temporary, "temporary", false, "")
	for _, name := range []string{"inner", "temporary"} {
		_ = flags.MarkHidden(name) // fails for an unknown flag only
	}
	return c
}

// validate reports every problem at once.
func (d *devConfig) validate() error {
	var problems []error
	seen := map[string]bool{}
	for i, r := range d.regions {
		r = strings.TrimSpace(r)
		d.regions[i] = r
		problems = append(problems, named("--regions", bourse.Region(r).Validate()))
		if seen[r] {
			problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--regions: %s is given twice", r))
		}
		seen[r] = true
	}
	if most := maxDevWorkers / max(1, len(d.regions)); len(d.regions) == 0 || d.workers < 1 || d.workers > most {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--workers %d in %s: use 1 to %d workers in all", d.workers, count(len(d.regions), "region"), maxDevWorkers))
	}
	if a, err := d.apiAddress(); err != nil {
		problems = append(problems, named("--api", err))
	} else if !a.Addr().IsLoopback() {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--api %s: a dev cluster speaks in the clear, so it listens on loopback only", a))
	}
	if d.fabric != fabricDirect && d.fabric != fabricNATS {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--fabric %s: use direct or nats", bourse.Quoted(d.fabric)))
	}
	_, err := parseCPUs(d.cpus)
	problems = append(problems, named("--cpus", err))
	_, err = parseMiB(d.memory)
	problems = append(problems, named("--memory", err))
	return joined(problems)
}

// apiAddress reads --api, also written as the verbs' flag of that name is:
// with http:// in front.
func (d *devConfig) apiAddress() (netip.AddrPort, error) {
	return parseListen(strings.TrimSuffix(strings.TrimPrefix(d.api, "http://"), "/"))
}

// portFree says, before anything is started, that the API's port is taken.
func (d *devConfig) portFree() error {
	a, err := d.apiAddress()
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(a))
	if err != nil {
		return hint(bourse.Errorf(bourse.CodeConflict, "cannot listen on %s: %w", a, err),
			"is another bourse dev running? it can be used as it is",
			"or choose another address with --api 127.0.0.1:PORT (port 0: any free one)")
	}
	return l.Close()
}

// serverName names the n-th worker of a region, from 1.
func serverName(region string, n int) string { return fmt.Sprintf("%s-%d", region, n) }
