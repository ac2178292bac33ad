package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// hostPatience limits the time that each of a host's servers may take to exit. It must
// be longer than a proxy's default --drain.
const hostPatience = 30 * time.Second

// newHost turns c into the command that runs a host's servers.
func newHost(s *cli.Shell, c *cobra.Command) *cobra.Command {
	var path string
	var lifeLine bool
	c.Short = "Run this host's servers, or one server"
	c.Long = `Run the servers that the configuration of this host contains, each in a process of
its own, and restart those that end. Machines keep running when their worker ends.

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

With the name of a server as a word, run only that server, in this process.`
	c.Example = `  bourse serve
  bourse serve worker --config /etc/bourse/bourse.toml`
	c.RunE = func(c *cobra.Command, _ []string) error {
		file, err := ReadFile(path)
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return cli.Hint(err, "bourse init, on the first host of a cluster", "bourse join TOKEN, on every other one", "bourse dev, to try Bourse on this host")
		}
		if err != nil {
			return err
		}
		ctx, stop := s.Lifetime(c.Context(), lifeLine)
		defer stop()
		return RunHost(ctx, s, file, func(r Ready) error {
			line, err := json.Marshal(r)
			if err == nil {
				_, _ = fmt.Fprintf(s.Out, "%s\n", line) // the reader may have closed the pipe
			}
			return err
		}, notifySystemd)
	}
	c.Flags().StringVar(&path, "config", DefaultFile, "`file` with the settings of this host's servers")
	bindLifeLine(c.Flags(), &lifeLine)
	return c
}

// RunHost runs the servers in a configuration until ctx is done. When a
// server is ready for the first time, RunHost calls each. Once every server has been
// ready, it calls all. Errors: those of a server that cannot be started with this
// configuration, and those of each and all.
func RunHost(ctx context.Context, s *cli.Shell, file *File, each func(Ready) error, all func() error) error {
	roles := file.Roles()
	if len(roles) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "%s has no servers: add a table [worker], [broker] or [proxy]", file.path)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var mu sync.Mutex // guards ready
	ready := map[bourse.Role]bool{}
	var running sync.WaitGroup
	children := make([]*child, len(roles))
	for i, role := range roles {
		c := &child{name: string(role), args: func() []string { return []string{"serve", string(role), "--config", file.path, "--life-line"} }}
		c.init(s)
		c.patience = hostPatience
		c.failed = func(err error) bool { return codeOfExit(err) == bourse.CodeInvalid }
		c.announced = func(r Ready) {
			mu.Lock()
			defer mu.Unlock()
			if ready[role] {
				return
			}
			ready[role] = true
			err := each(r)
			if err == nil && len(ready) == len(roles) {
				err = all()
			}
			if err != nil {
				fail(err)
			}
		}
		children[i] = c
		running.Go(func() {
			if err := c.run(); err != nil {
				fail(cli.Hint(bourse.Errorf(bourse.CodeInvalid, "the %s cannot be started: %w", role, err), "see its output above"))
			}
		})
	}
	<-ctx.Done()
	for _, c := range children {
		close(c.quit)
	}
	running.Wait()
	if err := context.Cause(ctx); err != context.Canceled { //nolint:errorlint // the end that was asked for
		return err
	}
	return nil
}
