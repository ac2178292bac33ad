package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// hostTimeout limits the time that each of a host's servers may take to exit. It must
// be longer than a proxy's default --drain.
const hostTimeout = 30 * time.Second

// newHost turns c into the command that runs a host's servers.
func newHost(s *cli.Shell, c *cobra.Command) *cobra.Command {
	var path string
	var check, lifeLine bool
	var defaults []string
	c.Short = "Run this host's servers, or one server"
	c.Long = `Run the servers in the configuration of this host, each in a process of its own, and
restart those that exit. Machines keep running when their worker exits.

The configuration has a table for each server: [worker], [broker] and [proxy].
Settings have the names of the servers' flags. Those above the tables are for all
servers; name and data are extended so that they differ. bourse init and bourse join
write this file.

  address = "10.0.0.2"
  region = "gru"
  name = "gru-1"

  [worker]
  memory = "8GiB"
  label = ["zone=b"]

SIGHUP reads the file again, and restarts only the servers whose settings have
changed. If the file is invalid, all servers keep running with their settings. To
check a file without running anything, use --check. To see all settings with their
defaults, use --print-defaults.

"bourse serve worker" and similar commands run only one server, in this process.`
	c.Example = `  bourse serve
  bourse serve --check
  bourse serve --print-defaults worker,proxy > bourse.toml
  bourse serve worker --config /etc/bourse/bourse.toml`
	c.RunE = func(c *cobra.Command, _ []string) error {
		if len(defaults) > 0 {
			return printDefaults(s.Out, defaults)
		}
		if check {
			return printCheck(s, path)
		}
		ctx, stop := s.Lifetime(c.Context(), lifeLine)
		defer stop()
		err := RunHost(ctx, s, path, func(r Ready) error {
			line, err := json.Marshal(r)
			if err == nil {
				_, _ = fmt.Fprintf(s.Out, "%s\n", line) // the reader may have closed the pipe
			}
			return err
		}, notifySystemd)
		return withoutFile(err)
	}
	c.Flags().StringVar(&path, "config", DefaultFile, "`file` with the settings of this host's servers")
	c.Flags().BoolVar(&check, "check", false, "check the file, print every problem with its line and column, and exit with status 2 if there is one")
	c.Flags().StringSliceVar(&defaults, "print-defaults", nil, "print a configuration file with all settings of these `servers`, as comments with their defaults: worker, broker and proxy, separated by commas")
	cli.CompleteFixed(c, "print-defaults", "worker", "broker", "proxy")
	bindLifeLine(c.Flags(), &lifeLine)
	return c
}

// withoutFile adds hints to the error for a missing configuration.
func withoutFile(err error) error {
	if bourse.CodeOf(err) != bourse.CodeNotFound {
		return err
	}
	return cli.Hint(err, "bourse init, on the first host of a cluster", "bourse join TOKEN, on every other one", "bourse dev, to try Bourse on this host")
}

// printCheck checks the configuration at path, and prints which servers it contains.
func printCheck(s *cli.Shell, path string) error {
	servers, err := CheckFile(path)
	if err != nil {
		return withoutFile(err)
	}
	var roles []string
	for _, server := range servers {
		roles = append(roles, string(server.Role))
	}
	if s.JSON {
		return s.PrintJSON(struct {
			File    string   `json:"file"`
			Servers []string `json:"servers"`
		}{path, roles})
	}
	_, err = fmt.Fprintf(s.Out, "%s is valid: %s\n", path, strings.Join(roles, ", "))
	return err
}

// RunHost runs the servers in the configuration at path until ctx is done. It calls onReady whenever a server
// becomes ready, and onAllReady once every server has been ready.
//
// SIGHUP makes RunHost read the file again. It then restarts the servers whose settings
// have changed, starts new ones, and stops those that the file no longer contains. If the
// file is invalid, nothing changes.
//
// Errors: not_found if there is no file; invalid if the file is invalid, or if a server exits with the status for
// invalid settings before all servers have been ready; and the errors of onReady and onAllReady.
func RunHost(ctx context.Context, s *cli.Shell, path string, onReady func(Ready) error, onAllReady func() error) error {
	// The channel buffers one signal that arrives during a reload. That is enough, because a single further reload
	// reads the latest file, no matter how many signals have arrived.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	return runHost(ctx, s, path, hangups, onReady, onAllReady)
}

func runHost(ctx context.Context, s *cli.Shell, path string, hangups <-chan os.Signal, onReady func(Ready) error, onAllReady func() error) error {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	h := &host{shell: s, path: path, onReady: onReady, onAllReady: onAllReady, fail: fail, servers: map[bourse.Role]*hostServer{}}
	if _, err := h.load(); err != nil {
		return err
	}
	for {
		select {
		case <-hangups:
			h.reload()
		case <-running.Done():
			err := context.Cause(running)
			if ctx.Err() != nil { // the caller requested it
				err = nil
			}
			h.stop()
			return err
		}
	}
}

// host runs the servers in a configuration.
type host struct {
	shell      *cli.Shell
	path       string
	onReady    func(Ready) error
	onAllReady func() error
	fail       context.CancelCauseFunc // stops all servers and makes runHost return the error
	running    sync.WaitGroup

	mu       sync.Mutex // guards the following fields, and is held while onReady is called
	file     *File      // the latest valid configuration
	servers  map[bourse.Role]*hostServer
	complete bool // whether every server has been ready
}

// hostServer is one of a host's servers.
type hostServer struct {
	child
	settings roleConfig
	ready    bool // whether it has ever been ready
}

// reload reads the configuration again. If it is invalid, nothing changes.
func (h *host) reload() {
	changes, err := h.load()
	if err != nil {
		h.shell.Note("the configuration was not reloaded, and the servers keep their settings:\n" + cli.MessageOf(err))
		return
	}
	if changes == nil {
		changes = []string{"no settings have changed"}
	}
	h.shell.Note("configuration reloaded: " + strings.Join(changes, ", "))
	if err := h.finishStart(); err != nil {
		h.fail(err)
	}
}

// load reads the configuration, and starts, restarts and stops servers accordingly. It
// does not wait for them.
func (h *host) load() (changes []string, err error) {
	file, err := ReadFile(h.path)
	if err != nil {
		return nil, err
	}
	servers, err := file.Servers()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.file = file
	for _, role := range bourse.ServerRoles() {
		if old := h.servers[role]; old != nil && !slices.Contains(file.Roles(), role) {
			changes = append(changes, "stopping the "+string(role))
			close(old.quit)
			delete(h.servers, role)
		}
	}
	for _, s := range servers {
		switch old := h.servers[s.Role]; {
		case old == nil:
			changes = append(changes, "starting the "+string(s.Role))
			h.start(s)
		case !sameSettings(old.settings, s.config):
			changes = append(changes, "restarting the "+string(s.Role))
			old.settings = s.config
			old.restart()
		}
	}
	return changes, nil
}

// start starts a server and keeps it running. Every server receives the text of the
// configuration that was checked, because the file may have changed since then, and may be
// incomplete while it is being edited.
func (h *host) start(s Server) {
	c := &hostServer{settings: s.config}
	h.servers[s.Role] = c
	c.name = string(s.Role)
	c.init(h.shell)
	c.timeout = hostTimeout
	c.args = func() []string {
		return []string{"serve", c.name, "--config", h.path, "--config-from-parent", "--life-line"}
	}
	c.config = func() []byte {
		h.mu.Lock()
		defer h.mu.Unlock()
		select {
		case <-c.again: // the process starts with the latest configuration anyway
		default:
		}
		return h.file.text
	}
	c.failed = func(err error) bool { return codeOfExit(err) == bourse.CodeInvalid && !h.hasStarted() }
	c.announced = func(r Ready) {
		if err := h.announce(c, r); err != nil {
			h.fail(err)
		}
	}
	h.running.Go(func() {
		if err := c.run(); err != nil {
			h.fail(cli.Hint(bourse.Errorf(bourse.CodeInvalid, "the %s cannot be started: %w", c.name, err), "see its output above"))
		}
	})
}

// hasStarted reports whether every server has been ready. From then on, a server that
// cannot start does not stop the other servers.
func (h *host) hasStarted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.complete
}

// announce reports that a server is ready.
func (h *host) announce(c *hostServer, r Ready) error {
	h.mu.Lock()
	c.ready = true
	err := h.onReady(r)
	h.mu.Unlock()
	if err != nil {
		return err
	}
	return h.finishStart()
}

// finishStart calls h.onAllReady once every server has been ready. Further calls have no effect.
func (h *host) finishStart() error {
	h.mu.Lock()
	first := !h.complete
	for _, c := range h.servers {
		first = first && c.ready
	}
	h.complete = h.complete || first
	h.mu.Unlock()
	if !first {
		return nil
	}
	return h.onAllReady()
}

// stop stops all servers.
func (h *host) stop() {
	h.mu.Lock()
	for _, c := range h.servers {
		close(c.quit)
	}
	h.mu.Unlock()
	h.running.Wait()
}
