package machine

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// execFlags are the flags of "machine exec".
type execFlags struct {
	app, timeout          string
	interactive, terminal bool
}

func newExec(s *cli.Shell) *cobra.Command {
	var f execFlags
	c := &cobra.Command{
		Use:   "exec [flags] MACHINE COMMAND...",
		Short: "Run a command in a machine",
		Long: `Run a command in a machine, with the environment and directory of the machine's
program, and exit with the command's status: 128 plus the signal's number if a
signal killed it, 127 if the program does not exist, and 126 if it cannot be
executed. Output is printed as it is written. Standard input is passed to the
command if it is not a terminal, or with -i. With -t, the command gets a terminal
of the same size as yours.`,
		Example: `  bourse machine exec -it quiet-river-1234 -- sh
  bourse machine exec quiet-river-1234 -- ps aux
  tar c . | bourse machine exec quiet-river-1234 -- tar x -C /srv`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeMachine(s, &f.app),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.UsageError(c)
			}
			id, err := resolve(c.Context(), s, f.app, args[0])
			if err != nil {
				return err
			}
			if s.JSON {
				return execForJSON(c.Context(), s, &f, id, args[1:])
			}
			return execStreaming(c.Context(), s, &f, id, args[1:])
		},
	}
	s.BindApp(c, &f.app)
	s.CommandLast(c)
	flags := c.Flags()
	flags.BoolVarP(&f.interactive, "interactive", "i", false, "pass standard input to the command, even from a terminal")
	flags.BoolVarP(&f.terminal, "tty", "t", false, "give the command a terminal")
	flags.StringVar(&f.timeout, "timeout", "", "`time` after which the command is killed, in seconds or as 5m (default: never; with --json 60s)")
	return c
}

// timeLimit returns the value of --timeout, or 0 if the flag is not set.
func (f *execFlags) timeLimit() (time.Duration, error) {
	if f.timeout == "" {
		return 0, nil
	}
	d, err := cli.ParseSeconds(f.timeout)
	if err == nil && d < time.Second {
		err = bourse.Errorf(bourse.CodeInvalid, "%s: use 1s or more", d)
	}
	return d, cli.FlagError("--timeout", err)
}

// execStreaming runs a command whose input and output are streamed.
func execStreaming(ctx context.Context, s *cli.Shell, f *execFlags, id bourse.MachineID, command []string) error {
	limit, err := f.timeLimit()
	if err != nil {
		return err
	}
	if limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	err = attach(ctx, s, attachment{
		stdin: f.interactive || !s.In.TTY, terminal: f.terminal,
		open: func(ctx context.Context, start machinesapi.ExecStart) (remoteCommand, error) {
			start.Command = command
			return s.Client().ExecStream(ctx, bourse.AppName(f.app), id, start)
		},
	})
	if limit > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return bourse.Errorf(bourse.CodeTimeout, "the command did not finish within %s and was killed", limit)
	}
	return withShellStatus(about(err, f.app, id))
}

// Limits for a command whose result is returned in a single reply.
const (
	maxStdin    = 2 << 20
	maxExec     = 10 * time.Minute
	defaultExec = time.Minute
)

// execForJSON runs a command without streaming and prints the API's reply as JSON.
func execForJSON(ctx context.Context, s *cli.Shell, f *execFlags, id bourse.MachineID, command []string) error {
	limit, err := f.timeLimit()
	if err == nil && limit > maxExec {
		err = cli.FlagError("--timeout", bourse.Errorf(bourse.CodeInvalid, "%s: with --json at most %s", limit, maxExec))
	}
	if err == nil && f.terminal {
		err = bourse.Errorf(bourse.CodeInvalid, "--tty and --json are mutually exclusive")
	}
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = defaultExec
	}
	in := machinesapi.ExecMachine{Command: command, Timeout: cli.SecondsUp(limit)}
	if in.Stdin, err = stdin(ctx, s); err != nil {
		return err
	}
	reply, err := s.Client().Exec(ctx, bourse.AppName(f.app), id, in)
	if err != nil {
		return withShellStatus(about(err, f.app, id))
	}
	if err := s.PrintJSON(reply); err != nil {
		return err
	}
	exit := bourse.Exit{Code: reply.ExitCode, Signal: reply.ExitSignal}
	return exitStatus(&exit)
}

// Exit statuses that shells use for a command that could not be run.
const (
	notExecutable = 126
	noProgram     = 127
)

// withShellStatus adds the exit status that a shell would report if the command could not
// be run. It searches the error's text for the reason, because the error code is the same
// for every reason.
func withShellStatus(err error) error {
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		return err
	}
	text := err.Error()
	for _, phrase := range []string{"not executable", "is a directory", "permission denied", "exec format error", "cannot be executed"} {
		if strings.Contains(text, phrase) {
			return cli.WithExitStatus(err, notExecutable)
		}
	}
	for _, phrase := range []string{"was not found in PATH", "does not exist", "executable file not found", "no such file or directory"} {
		if strings.Contains(text, phrase) {
			return cli.WithExitStatus(err, noProgram)
		}
	}
	return err
}

// stdin returns the contents of standard input, or "" if it is a terminal.
func stdin(ctx context.Context, s *cli.Shell) (string, error) {
	if s.In.TTY {
		return "", nil
	}
	data, err := s.ReadInput(ctx, func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxStdin+1)) })
	switch {
	case err != nil:
		return "", bourse.Errorf(bourse.CodeOf(err), "read standard input: %w", err)
	case len(data) > maxStdin:
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input is longer than %s", cli.MiB(maxStdin>>20))
	case !utf8.Valid(data):
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input is not UTF-8 text, which --json requires")
	}
	return string(data), nil
}

// exitStatus returns a remote command's exit status as an error.
func exitStatus(exit *bourse.Exit) error {
	switch {
	case exit.Signal > 0:
		return cli.ExitStatus(128 + exit.Signal)
	case exit.Code < 0:
		return bourse.Errorf(bourse.CodeTimeout, "the command's exit status is unknown")
	case exit.Code > 0:
		return cli.ExitStatus(exit.Code)
	}
	return nil
}
