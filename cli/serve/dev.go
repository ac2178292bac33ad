package serve

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// config is the configuration of "bourse dev".
type config struct {
	regions    []string
	workers    int // number of workers per region
	data       string
	api        string
	proxy      string // the proxy's HTTP address, IP:PORT, or "none"
	proxyGiven bool   // whether --proxy was given, so that no other port may be used
	cpus       string // CPUs of each worker, in the format of the worker's flag
	memory     string
	containerd string // value of --containerd, in the format of the worker's flag
	fabric     string // direct or nats
	idleAfter  string // value of --idle-after for each worker
	readyFile  string
	logLevel   string
	inner      bool // whether this is the inner process, which runs the cluster; see keeper.go
	temporary  bool // whether to remove the data directory at the end
	sweep      Sweep
}

// Sweep removes leftovers of servers that have exited: mounts below dir, and containerd
// namespaces with names that begin with prefix.
type Sweep func(ctx context.Context, containerd, prefix, dir string) error

// The fabrics of a dev cluster.
const (
	fabricDirect = "direct"
	fabricNATS   = "nats"
)

// maxWorkers is the maximum number of workers in a dev cluster.
const maxWorkers = 64

// NewDev returns the "dev" command.
func NewDev(s *cli.Shell, sweep Sweep) *cobra.Command {
	d := config{sweep: sweep}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster on this host until Ctrl-C",
		Long: `Run a whole cluster on this host: workers in several regions, a broker and a proxy.
Each server is a separate process, so killing one is a real failure. It is then
restarted. The proxy serves the machines that provide services: port 80 of the app
"web" is at http://web.localhost:8080.

Nothing needs to be installed. Ctrl-C stops the servers and their machines, and
removes all their files and containers. With --data, the servers' files are kept, but
the machines are stopped nevertheless.`,
		Example: `  bourse dev
  bourse dev --regions gru,mad --workers 3 --api 127.0.0.1:0
  bourse dev --fabric nats   # connect through NATS; workers listen on no port`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d.proxyGiven = c.Flags().Changed("proxy")
			if err := d.validate(); err != nil {
				return err
			}
			if d.inner {
				return run(c.Context(), s, d)
			}
			return runKeeper(c.Context(), s, d)
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&d.regions, "regions", []string{"gru", "mad", "ord"}, "`regions` of the cluster, separated by commas")
	flags.IntVar(&d.workers, "workers", 2, "`number` of workers in each region")
	flags.StringVar(&d.fabric, "fabric", fabricDirect, "`network` between the servers: direct, or nats for a NATS server that is part of the cluster")
	flags.StringVar(&d.containerd, "containerd", ContainerdAuto, "`path` of containerd's socket, which is used to run images; auto means the default socket if it exists, none disables images")
	flags.StringVar(&d.data, "data", "", "`directory` for the servers' files, which is kept at the end (default: a temporary directory)")
	flags.StringVar(&d.api, "api", cli.DefaultAPI, "API address of the broker, `IP:PORT`; port 0 means any free port")
	flags.StringVar(&d.proxy, "proxy", defaultProxy, "HTTP address of the proxy, `IP:PORT`, or none for no proxy; port 0 means any free port, which is also used if the default port is taken or --api is not the default")
	flags.StringVar(&d.cpus, "cpus", "4", "`number` of cores that each worker offers, regardless of the host's cores")
	flags.StringVar(&d.memory, "memory", "4GiB", "memory `size` that each worker offers")
	flags.StringVar(&d.idleAfter, "idle-after", "1m", "idle `time` after which a worker stops or suspends a machine whose services request it")
	flags.StringVar(&d.readyFile, "ready-file", "", "`file` to write {api, proxy, pid, data, servers, token_file} to as JSON once the cluster is ready, and after each restart of a server")
	flags.StringVar(&d.logLevel, "log-level", "warn", "log `level` of the servers: debug, info, warn or error")
	flags.BoolVar(&d.inner, "inner", false, "")
	flags.BoolVar(&d.temporary, "temporary", false, "")
	for _, name := range []string{"inner", "temporary"} {
		_ = flags.MarkHidden(name) // fails for an unknown flag only
	}
	return c
}

// validate returns all problems as one error.
func (d *config) validate() error {
	var problems []error
	seen := map[string]bool{}
	for i, r := range d.regions {
		r = strings.TrimSpace(r)
		d.regions[i] = r
		problems = append(problems, cli.FlagError("--regions", bourse.Region(r).Validate()))
		if seen[r] {
			problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--regions: %s is given more than once", r))
		}
		seen[r] = true
	}
	if limit := maxWorkers / max(1, len(d.regions)); len(d.regions) == 0 || d.workers < 1 || d.workers > limit {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--workers %d in %s: use 1 to %d workers in total", d.workers, cli.Count(len(d.regions), "region"), maxWorkers))
	}
	if a, err := d.apiAddress(); err != nil {
		problems = append(problems, cli.FlagError("--api", err))
	} else if !a.Addr().IsLoopback() {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--api %s: a dev cluster does not encrypt, so it can only listen on loopback", a))
	}
	if a, err := d.proxyAddress(); err != nil {
		problems = append(problems, cli.FlagError("--proxy", err))
	} else if a.IsValid() && !a.Addr().IsLoopback() {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--proxy %s: use a loopback address", a))
	}
	if d.fabric != fabricDirect && d.fabric != fabricNATS {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--fabric %s: use direct or nats", bourse.Quoted(d.fabric)))
	}
	_, err := cli.ParseCPUs(d.cpus)
	problems = append(problems, cli.FlagError("--cpus", err))
	_, err = cli.ParseMiB(d.memory)
	problems = append(problems, cli.FlagError("--memory", err))
	return cli.JoinProblems(problems)
}

// apiAddress parses --api. As with client commands' --api, the value may begin with http://.
func (d *config) apiAddress() (netip.AddrPort, error) {
	return cli.ParseListen(strings.TrimSuffix(strings.TrimPrefix(d.api, "http://"), "/"))
}

// defaultProxy is the proxy's default address.
const defaultProxy = "127.0.0.1:8080"

// proxyAddress parses --proxy. It returns an invalid address if the proxy is disabled.
func (d *config) proxyAddress() (netip.AddrPort, error) {
	if d.proxy == "none" {
		return netip.AddrPort{}, nil
	}
	a, err := cli.ParseListen(d.proxy)
	if err != nil || d.proxyGiven {
		return a, err
	}
	if d.api != cli.DefaultAPI || !free(a) { // another cluster on this host may use the default port
		a = netip.AddrPortFrom(a.Addr(), 0)
	}
	return a, nil
}

func free(a netip.AddrPort) bool {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(a))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// portFree returns an error if the API's port is in use. It is called before anything
// is started.
func (d *config) portFree() error {
	a, err := d.apiAddress()
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(a))
	if err != nil {
		return cli.Hint(bourse.Errorf(bourse.CodeConflict, "cannot listen on %s: %w", a, err),
			"--api 127.0.0.1:0, for any free port")
	}
	return l.Close()
}

// serverName returns the name of the n-th worker of a region. n starts at 1.
func serverName(region string, n int) string { return fmt.Sprintf("%s-%d", region, n) }
