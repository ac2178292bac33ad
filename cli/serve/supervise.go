package serve

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/driver"
)

// Supervisor runs tasks without a server and returns the names of those that
// failed.
type Supervisor func(ctx context.Context, tasks []Task, to Print) (failed []string, err error)

// NewSupervise returns the command that has tasks run without a server.
func NewSupervise(s *cli.Shell, run Supervisor) *cobra.Command {
	return &cobra.Command{
		Use:   "supervise FILE",
		Short: "Run the commands of a file side by side, with no server",
		Long: `Run the commands of a JSON file side by side, with no server at all, until each has
ended for good or Ctrl-C stops them:

  [{"Name": "web", "Command": "./web --port 8080", "Restart": "always"},
   {"Name": "job", "Command": ["./job", "once"], "Restart": "no"}]

A command is a string for "sh -c" or a list of words. It is started again as its
restart policy says: no, on-failure (the default) or always, with a growing pause
between 100ms and 30s, and given up after 10 times in 5 minutes. What it prints
is printed behind its name. With FILE - the tasks come from standard input.

Ends with 1 when a task has failed for good, else with 0. Nothing is left behind,
not even after kill -9.`,
		Example: `  bourse supervise tasks.json`,
		Args:    cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			tasks, err := readTasks(s, args[0])
			if err != nil {
				return err
			}
			cli.OutliveReaders()
			failed, err := run(c.Context(), tasks, newPrinter(s, tasks))
			if err != nil {
				return err
			}
			if len(failed) > 0 {
				s.Note(fmt.Sprintf("%s failed: %s", cli.Count(len(failed), "task"), strings.Join(failed, ", ")))
				return cli.ExitStatus(1)
			}
			return nil
		},
	}
}

func readTasks(s *cli.Shell, file string) ([]Task, error) {
	var in io.Reader = s.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read the tasks: %w", err)
		}
		defer f.Close()
		in = f
	}
	tasks, err := Read(in)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeOf(err), "%s: %w", file, err)
	}
	return tasks, nil
}

// newPrinter prints each line behind the name of its task: standard output on
// standard output, all else on standard error.
func newPrinter(s *cli.Shell, tasks []Task) Print {
	width := 0
	for _, t := range tasks {
		width = max(width, len(t.Name))
	}
	return &taskPrinter{out: s.Out, err: s.Err, width: width}
}

type taskPrinter struct {
	out, err io.Writer
	width    int
}

// Line implements Print. Who reads us may have left: tasks go on.
func (p *taskPrinter) Line(task string, l driver.LogLine) {
	w := p.out
	if l.Stream == "stderr" {
		w = p.err
	}
	_, _ = fmt.Fprintf(w, "%-*s | %s\n", p.width, task, l.Text)
}

// Say implements Print.
func (p *taskPrinter) Say(task, text string) {
	_, _ = fmt.Fprintf(p.err, "%-*s * %s\n", p.width, task, text)
}
