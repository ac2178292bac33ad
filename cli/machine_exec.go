package cli

import (
	"context"
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// execFlags say how a command is run beside a machine's program.
type execFlags struct {
	app, timeout          string
	interactive, terminal bool
}

func (s *shell) machineExec() *cobra.Command {
	var f execFlags
	c := &cobra.Command{
		Use:   "exec MACHINE -- COMMAND...",
		Short: "Run a command beside a machine's program",
		Long: `Run a command beside a machine's program, in its environment and directory, and
end with its exit status (128 and the signal's number when one ended it). Output
comes as it is written. Standard input is passed on when it is no terminal, or
with -i. With -t the command has a terminal, of the size of yours.`,
		Example: `  bourse machine exec -it quiet-river-1234 -- sh
  bourse machine exec quiet-river-1234 -- ps aux
  tar c . | bourse machine exec quiet-river-1234 -- tar x -C /srv`,
		Args:              atLeast(2),
		ValidArgsFunction: s.completeMachine(&f.app),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := s.resolve(c.Context(), f.app, args[0])
			if err != nil {
				return err
			}
			if s.json {
				return s.execForJSON(c.Context(), &f, id, args[1:])
			}
			return s.execStreaming(c.Context(), &f, id, args[1:])
		},
	}
	s.bindApp(c, &f.app)
	flags := c.Flags()
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass standard input on, also from a terminal")
	flags.BoolVarP(&f.terminal, "tty", "t", false, "give the command a terminal")
	flags.StringVar(&f.timeout, "timeout", "", "kill the command after this `time`, seconds or 5m (default: never; with --json 60s)")
	return c
}

// patience reads --timeout; 0 when it was not given.
func (f *execFlags) patience() (time.Duration, error) {
	if f.timeout == "" {
		return 0, nil
	}
	d, err := parseSeconds(f.timeout)
	if err == nil && d < time.Second {
		err = bourse.Errorf(bourse.CodeInvalid, "%s: use 1s or more", d)
	}
	return d, named("--timeout", err)
}

// execStreaming runs a command with its input and output going on as it runs.
func (s *shell) execStreaming(ctx context.Context, f *execFlags, id bourse.MachineID, command []string) error {
	patience, err := f.patience()
	if err != nil {
		return err
	}
	if patience > 0 {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = limited
	}
	err = s.attach(ctx, attachment{
		stdin: f.interactive || !s.In.TTY, terminal: f.terminal,
		open: func(ctx context.Context, start machinesapi.ExecStart) (remoteCommand, error) {
			start.Command = command
			return s.client().ExecStream(ctx, bourse.AppName(f.app), id, start)
		},
	})
	if patience > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return bourse.Errorf(bourse.CodeTimeout, "the command did not end within %s and was killed", patience)
	}
	return about(err, f.app, id)
}

// Bounds of a command whose whole result is one reply.
const (
	maxStdin    = 2 << 20
	maxExec     = 10 * time.Minute
	defaultExec = time.Minute
)

// execForJSON runs a command and prints the API's reply.
func (s *shell) execForJSON(ctx context.Context, f *execFlags, id bourse.MachineID, command []string) error {
	patience, err := f.patience()
	if err == nil && patience > maxExec {
		err = named("--timeout", bourse.Errorf(bourse.CodeInvalid, "%s: with --json at most %s", patience, maxExec))
	}
	if err == nil && f.terminal {
		err = bourse.Errorf(bourse.CodeInvalid, "--tty and --json exclude each other")
	}
	if err != nil {
		return err
	}
	if patience == 0 {
		patience = defaultExec
	}
	in := machinesapi.ExecMachine{Command: command, Timeout: secondsUp(patience)}
	if in.Stdin, err = s.stdin(ctx); err != nil {
		return err
	}
	reply, err := s.client().Exec(ctx, bourse.AppName(f.app), id, in)
	if err != nil {
		return about(err, f.app, id)
	}
	if err := s.printJSON(reply); err != nil {
		return err
	}
	exit := bourse.Exit{Code: reply.ExitCode, Signal: reply.ExitSignal}
	return exitStatus(&exit)
}

// stdin reads what was piped in, nothing from a terminal.
func (s *shell) stdin(ctx context.Context) (string, error) {
	if s.In.TTY {
		return "", nil
	}
	data, err := s.input(ctx, func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxStdin+1)) })
	switch {
	case err != nil:
		return "", bourse.Errorf(bourse.CodeOf(err), "read standard input: %w", err)
	case len(data) > maxStdin:
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input is longer than %s", mib(maxStdin>>20))
	case !utf8.Valid(data):
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input is no UTF-8 text: with --json the API carries nothing else")
	}
	return string(data), nil
}

// exitStatus ends this program as a command has ended elsewhere.
func exitStatus(exit *bourse.Exit) error {
	switch {
	case exit.Signal > 0:
		return remoteExit(128 + exit.Signal)
	case exit.Code < 0:
		return bourse.Errorf(bourse.CodeTimeout, "the command's exit status is not known")
	case exit.Code > 0:
		return remoteExit(exit.Code)
	}
	return nil
}
