package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
)

// status is the result of a check.
type status string

// The results of a check. A check that could not be performed results in a warning.
const (
	statusOK      status = "ok"
	statusWarning status = "warning"
	statusProblem status = "problem"
)

// finding is one line of the report about a host.
type finding struct {
	Check   string `json:"check"`
	Status  status `json:"status"`
	Finding string `json:"finding"`
	Try     string `json:"try,omitempty"` // command or other advice that may correct the problem
}

func ok(check, format string, args ...any) finding {
	return finding{Check: check, Status: statusOK, Finding: fmt.Sprintf(format, args...)}
}

func warning(check, try, format string, args ...any) finding {
	return finding{check, statusWarning, fmt.Sprintf(format, args...), try}
}

func problem(check, try, format string, args ...any) finding {
	return finding{check, statusProblem, fmt.Sprintf(format, args...), try}
}

// failed returns the finding for an error. The finding is a warning if the error would not
// occur when running as root, and otherwise a problem.
func failed(check, try string, err error) finding {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return warning(check, asRoot, "not checked: %s", cli.MessageOf(err))
	}
	return problem(check, try, "%s", cli.MessageOf(err))
}

const asRoot = "run this command as root"

// check examines one aspect of a host. It must not change the host.
type check struct {
	name  string // name of the finding if the check takes too long
	limit time.Duration
	run   func(ctx context.Context) []finding
}

// Time limits of checks. The check of the cluster has a longer limit, because it
// consists of several steps, each with its own limit.
const (
	checkLimit   = 5 * time.Second
	clusterLimit = time.Minute
)

// NewDoctor returns the "doctor" command.
func NewDoctor(s *cli.Shell) *cobra.Command {
	return newDoctor(s, func(config string) []check { return checksOf(s, config) })
}

func newDoctor(s *cli.Shell, checks func(config string) []check) *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host and its connections to the cluster",
		Long: `Check this host and its connections to the cluster, and print what to do about each
problem: the configuration and its files, certificates, disks, cgroups, containerd,
networks, volumes, limits, DNS, the connections to and from every other member, the
members' versions, and the clock. Nothing is changed.

On a host that is not part of a cluster yet, it checks whether the host can run a
worker.

The exit status is 5 if there is a problem, and 0 if there are only warnings.`,
		Example: `  bourse doctor
  bourse doctor --json | jq '.[] | select(.status == "problem")'`,
		Args: cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			found := examine(c.Context(), checks(config))
			if err := printFindings(s, found); err != nil {
				return err
			}
			for _, f := range found {
				if f.Status == statusProblem {
					return cli.ExitStatus(bourse.CodeFailedPrecondition.ExitStatus()) // the output contains the reason
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&config, "config", serve.DefaultFile, "`file` with the settings of this host's servers")
	return c
}

// checksOf returns the checks of the host whose configuration is at the path in config.
func checksOf(s *cli.Shell, config string) []check {
	found, servers := readConfig(config)
	checks := []check{{"configuration", checkLimit, func(context.Context) []finding { return found }}}
	add := func(name string, run func(ctx context.Context) []finding) {
		checks = append(checks, check{name, checkLimit, run})
	}
	if servers == nil {
		add("ports", func(ctx context.Context) []finding { return checkPorts(ctx, s) })
	}
	add("credentials", func(context.Context) []finding { return checkCredentials(config, servers, s.Now()) })
	add("disk", func(context.Context) []finding { return checkDisks(servers) })
	if worker := workerOf(servers); worker != nil {
		add("cgroups", func(context.Context) []finding { return checkCgroups() })
		add("containerd", func(ctx context.Context) []finding { return checkContainerd(ctx, worker) })
		add("networks", func(context.Context) []finding { return checkNetworks(worker) })
		add("virtual machines", func(context.Context) []finding { return checkVMs(worker) })
		add("volumes", func(context.Context) []finding { return checkVolumes(worker) })
	}
	add("limits", func(ctx context.Context) []finding { return checkLimits(ctx, len(servers) > 0) })
	add("DNS", func(ctx context.Context) []finding { return checkDNS(ctx, servers) })
	if len(servers) > 0 {
		checks = append(checks, check{"members", clusterLimit, func(ctx context.Context) []finding {
			return newCluster(servers, s.Version.Release, s.Now).check(ctx)
		}})
	}
	return checks
}

// examine runs all checks concurrently, and returns their findings in the order of the
// checks.
func examine(ctx context.Context, checks []check) []finding {
	found := make([][]finding, len(checks))
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, c.limit)
			defer cancel()
			// A check may hang in the kernel, for example on a network file system. Its
			// goroutine then runs until this process exits.
			done := make(chan []finding, 1)
			go func() { done <- c.run(ctx) }()
			select {
			case found[i] = <-done:
			case <-time.After(c.limit + time.Second):
				found[i] = []finding{warning(c.name, "repeat the command; if that does not help, look for a disk or server that hangs", "not checked: no result within %s", c.limit)}
			}
		})
	}
	running.Wait()
	var all []finding
	for _, f := range found {
		all = append(all, f...)
	}
	return all
}

func printFindings(s *cli.Shell, found []finding) error {
	if s.JSON {
		return s.PrintJSON(found)
	}
	t := cli.NewTable("STATUS", "CHECK", "FINDING").Narrow(2).Wrap().Paint(0, toneOf)
	counts := map[status]int{}
	for _, f := range found {
		counts[f.Status]++
		t.Row(string(f.Status), f.Check, f.Finding)
		if f.Try != "" {
			t.Row("", "", "try: "+s.WithProgramName(f.Try))
		}
	}
	if err := t.Write(s.Out); err != nil {
		return err
	}
	var summary []string
	for _, status := range []status{statusProblem, statusWarning} {
		if n := counts[status]; n > 0 {
			summary = append(summary, cli.Count(n, string(status)))
		}
	}
	if summary == nil {
		summary = []string{"no problems"}
	}
	_, err := fmt.Fprintf(s.Out, "\n%s\n", strings.Join(summary, ", "))
	return err
}

func toneOf(cell string) cli.Tone {
	switch status(cell) {
	case statusOK:
		return cli.Good
	case statusProblem:
		return cli.Bad
	case statusWarning:
		return cli.InTransition
	}
	return cli.Plain
}
