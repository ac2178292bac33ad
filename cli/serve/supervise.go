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

// Supervisor runs tasks without a server. It returns the names of the failed tasks.
type Supervisor func(ctx context.Context, tasks []Task, to Print) (failed []string, err error)

// NewSupervise returns the "supervise" command.
func NewSupervise(s *cli.Shell, run Supervisor) *cobra.Command {
	return &cobra.Command{
		Use:   "supervise FILE",
		Short: "Run the commands in a file in parallel, without a server",
		Long: `Run the commands in a JSON file in parallel, without a server, until each has ended
for good or Ctrl-C stops them:

  [{"Name": "web", "Command": "./web --port 8080", "Restart": "always"},
   {"Name": "job", "Command": ["./job", "once"], "Restart": "no"}]

A command is a string for "sh -c" or a list of arguments. It is restarted according to
its restart policy, which is no, on-failure (the default) or always. The delay between
restarts grows from 100ms to 30s, and a command is not restarted more than 10 times in
5 minutes. Each line of output is printed after the command's name. If FILE is -,
the commands are read from standard input.

The exit status is 1 if a command has failed, and otherwise 0. All processes are
terminated even if this command is killed with SIGKILL.`,
		Example: `  bourse supervise tasks.json`,
		Args:    cli.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			tasks, err := readTasks(s, args[0])
			if err != nil {
				return err
			}
			cli.IgnoreSIGPIPE()
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

// newPrinter returns a printer that prefixes each line with the name of its task. It
// prints the tasks' standard output to standard output and everything else to standard
// error.
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

// Line implements Print. It ignores write errors, so that tasks continue if nobody
// reads their output.
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
