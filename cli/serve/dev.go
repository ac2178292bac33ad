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

// config is the whole configuration of "bourse dev".
type config struct {
	regions    []string
	workers    int // of each region
	data       string
	api        string
	proxy      string // IP:PORT for HTTP; none: there is no proxy
	proxyGiven bool   // it was asked for: another port will not do
	cpus       string // of each worker, as the worker's flag has it
	memory     string
	containerd string // as the worker's flag has it
	fabric     string // direct or nats
	idleAfter  string // of each worker, as the worker's flag has it
	readyFile  string
	logLevel   string
	inner      bool // this is the process that runs the cluster; see dev_keeper.go
	temporary  bool // data is to be removed at the end
	sweep      Sweep
}

// Sweep removes what servers have on this host beside processes and files:
// containerd's namespaces whose names begin with prefix, what is mounted below
// dir. It is called when the servers have ended.
type Sweep func(ctx context.Context, containerd, prefix, dir string) error

// The fabrics of a dev cluster.
const (
	fabricDirect = "direct"
	fabricNATS   = "nats"
)

// maxWorkers is what one host's processes and ports bear.
const maxWorkers = 64

// NewDev returns the command of a whole cluster on this host.
func NewDev(s *cli.Shell, sweep Sweep) *cobra.Command {
	d := config{sweep: sweep}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole cluster on this host, until Ctrl-C",
		Long: `Run a whole cluster on this host: workers in several regions, a broker and a proxy,
each a process of its own, so that killing one is a real failure; it is started
again. The proxy answers for machines that serve ports: app web, port 80 of its
services, is http://web.localhost:8080.
Nothing needs to be installed, and nothing is left behind: Ctrl-C ends machines,
servers and files, and what containerd has of them. With --data the servers'
files stay; machines end all the same.`,
		Example: `  bourse dev
  bourse dev --regions gru,mad --workers 3 --api 127.0.0.1:0
  bourse dev --fabric nats   # over a NATS server: no worker listens anywhere`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d.proxyGiven = c.Flags().Changed("proxy")
			if err := d.validate(); err != nil {
				return err
			}
			if d.inner {
				return run(c.Context(), s, d)
			}
			return keep(c.Context(), s, d)
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&d.regions, "regions", []string{"gru", "mad", "ord"}, "`regions`, comma separated")
	flags.IntVar(&d.workers, "workers", 2, "`number` of workers in each region")
	flags.StringVar(&d.fabric, "fabric", fabricDirect, "how servers reach one another: direct, or `nats`, over a NATS server that is part of the cluster")
	flags.StringVar(&d.containerd, "containerd", ContainerdAuto, "`address` of containerd's socket, for machines of images; auto: the usual one if it is there; none: no such machines")
	flags.StringVar(&d.data, "data", "", "`directory` for the servers' files, kept at the end (default: a temporary one)")
	flags.StringVar(&d.api, "api", cli.DefaultAPI, "`IP:PORT` of the broker's API; port 0 means any free one")
	flags.StringVar(&d.proxy, "proxy", usualProxy, "`IP:PORT` at which the proxy serves HTTP; port 0 means any free one, as does the default where it is taken or the API has another port; none: no proxy")
	flags.StringVar(&d.cpus, "cpus", "4", "`cores` that each worker sells; what the host really has is not asked")
	flags.StringVar(&d.memory, "memory", "4GiB", "memory, a `size`, that each worker sells")
	flags.StringVar(&d.idleAfter, "idle-after", "1m", "`time` for which nobody uses a machine before its worker stops or suspends it, if its services say so")
	flags.StringVar(&d.readyFile, "ready-file", "", "write {api, proxy, pid, data, servers, token_file} as JSON to this `file` once ready, and again when a server was restarted")
	flags.StringVar(&d.logLevel, "log-level", "warn", "`level` that the servers log: debug, info, warn or error")
	flags.BoolVar(&d.inner, "inner", false, "")
	flags.BoolVar(&d.temporary, "temporary", false, "")
	for _, name := range []string{"inner", "temporary"} {
		_ = flags.MarkHidden(name) // fails for an unknown flag only
	}
	return c
}

// validate reports every problem at once.
func (d *config) validate() error {
	var problems []error
	seen := map[string]bool{}
	for i, r := range d.regions {
		r = strings.TrimSpace(r)
		d.regions[i] = r
		problems = append(problems, cli.FlagError("--regions", bourse.Region(r).Validate()))
		if seen[r] {
			problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--regions: %s is given twice", r))
		}
		seen[r] = true
	}
	if most := maxWorkers / max(1, len(d.regions)); len(d.regions) == 0 || d.workers < 1 || d.workers > most {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--workers %d in %s: use 1 to %d workers in all", d.workers, cli.Count(len(d.regions), "region"), maxWorkers))
	}
	if a, err := d.apiAddress(); err != nil {
		problems = append(problems, cli.FlagError("--api", err))
	} else if !a.Addr().IsLoopback() {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--api %s: a dev cluster speaks in the clear, so it listens on loopback only", a))
	}
	if a, err := d.proxyAddress(); err != nil {
		problems = append(problems, cli.FlagError("--proxy", err))
	} else if a.IsValid() && !a.Addr().IsLoopback() {
		problems = append(problems, bourse.Errorf(bourse.CodeInvalid, "--proxy %s: use an address of loopback", a))
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

// apiAddress reads --api, also written as the verbs' flag of that name is:
// with http:// in front.
func (d *config) apiAddress() (netip.AddrPort, error) {
	return cli.ParseListen(strings.TrimSuffix(strings.TrimPrefix(d.api, "http://"), "/"))
}

// usualProxy is where the proxy serves unless that is taken.
const usualProxy = "127.0.0.1:8080"

// proxyAddress reads --proxy. An invalid address means that there is no proxy.
func (d *config) proxyAddress() (netip.AddrPort, error) {
	if d.proxy == "none" {
		return netip.AddrPort{}, nil
	}
	a, err := cli.ParseListen(d.proxy)
	if err != nil || d.proxyGiven {
		return a, err
	}
	if d.api != cli.DefaultAPI || !free(a) { // a cluster beside the usual one
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

// portFree returns an error if the API's port is taken, before anything is
// started.
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

// serverName names the n-th worker of a region, from 1.
func serverName(region string, n int) string { return fmt.Sprintf("%s-%d", region, n) }
