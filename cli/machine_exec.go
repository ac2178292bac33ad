package cli

import (
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// maxStdin bounds what exec sends: the API takes a text within one request.
const maxStdin = 2 << 20

// maxExec is the longest that an exec may take.
const maxExec = 10 * time.Minute

func (s *shell) machineExec() *cobra.Command {
	var app, timeout string
	c := &cobra.Command{
		Use:   "exec MACHINE -- COMMAND...",
		Short: "Run a command beside a machine's program",
		Long: `Run a command beside a machine's program, in its environment and directory, and
end with its exit status (128 and the signal's number when one ended it).
Standard input is passed on when it is no terminal. Each output is cut at 1 MiB.`,
		Example: `  bourse machine exec quiet-river-1234 -- ps aux
  echo hello | bourse machine exec quiet-river-1234 -- wc -c`,
		Args:              atLeast(2),
		ValidArgsFunction: s.completeMachine(&app),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := parseSeconds(timeout)
			if err == nil && (d < time.Second || d > maxExec) {
				err = bourse.Errorf(bourse.CodeInvalid, "%s: use 1s to %s", d, maxExec)
			}
			if err != nil {
				return named("--timeout", err)
			}
			in := machinesapi.ExecMachine{Command: args[1:], Timeout: secondsUp(d)}
			if in.Stdin, err = s.stdin(c); err != nil {
				return err
			}
			id, err := s.resolve(c.Context(), app, args[0])
			if err != nil {
				return err
			}
			reply, err := s.client().Exec(c.Context(), bourse.AppName(app), id, in)
			if err != nil {
				return about(err, app, id)
			}
			return s.printExec(&reply)
		},
	}
	s.bindApp(c, &app)
	c.Flags().StringVarP(&timeout, "timeout", "t", "60s", "kill the command after this `time`, seconds or 5m")
	return c
}

// stdin reads what was piped in, nothing from a terminal.
func (s *shell) stdin(c *cobra.Command) (string, error) {
	if s.In.TTY {
		return "", nil
	}
	data, err := s.input(c.Context(), func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxStdin+1)) })
	switch {
	case err != nil:
		return "", bourse.Errorf(bourse.CodeOf(err), "read standard input: %w", err)
	case len(data) > maxStdin:
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input is longer than %s", mib(maxStdin>>20))
	case !utf8.Valid(data):
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input is no UTF-8 text: the API carries nothing else")
	}
	return string(data), nil
}

func (s *shell) printExec(r *machinesapi.ExecReply) error {
	var err error
	if s.json {
		err = s.printJSON(r)
	} else {
		_, out := io.WriteString(s.Out, r.Stdout)
		_, errs := io.WriteString(s.Err, r.Stderr)
		err = errors.Join(out, errs)
	}
	if err != nil {
		return err
	}
	switch {
	case r.ExitSignal > 0:
		return remoteExit(128 + r.ExitSignal)
	case r.ExitCode < 0:
		return bourse.Errorf(bourse.CodeTimeout, "the command's exit status is not known")
	case r.ExitCode > 0:
		return remoteExit(r.ExitCode)
	}
	return nil
}
