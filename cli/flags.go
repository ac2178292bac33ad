package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
)

// Exactly wants n arguments; the error shows which ones.
func Exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return UsageError(c)
		}
		return nil
	}
}

// AtLeast wants n arguments or more.
func AtLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return UsageError(c)
		}
		return nil
	}
}

// NoArgs wants no arguments.
func NoArgs(c *cobra.Command, args []string) error { return Exactly(0)(c, args) }

// UsageError returns the error of a command that got other arguments than it wants.
func UsageError(c *cobra.Command) error {
	return bourse.Errorf(bourse.CodeInvalid, "want: %s", c.UseLine())
}

// JoinProblems makes one CodeInvalid error of all problems, or nil.
func JoinProblems(problems []error) error {
	if err := errors.Join(problems...); err != nil {
		return &bourse.Error{Code: bourse.CodeInvalid, Message: err.Error(), Err: err}
	}
	return nil
}

// FlagError adds to an error the flag that it is about; err may be nil.
func FlagError(flag string, err error) error {
	if err == nil {
		return nil
	}
	return bourse.Errorf(bourse.CodeOf(err), "%s: %w", flag, err)
}

// Each does something for every word, one after the other, and goes on past
// failures.
func Each(words []string, do func(word string) error) error {
	var problems []error
	for _, word := range words {
		if err := do(word); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) == 1 {
		return problems[0]
	}
	return errors.Join(problems...)
}

// FlagGroup is a titled part of a command's flags in its help.
type FlagGroup struct {
	Title string
	Flags []string // names; a flag that the command doesn't have is left out
}

// localFlags is the part of the usage template that prints a command's own flags.
const localFlags = "Flags:\n{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}"

// GroupFlags has the help of c print its flags in groups, in this order, behind the
// flags that no group names.
func GroupFlags(c *cobra.Command, groups ...FlagGroup) {
	c.SetUsageFunc(func(c *cobra.Command) error {
		text := groupedFlags(c.LocalFlags(), groups)
		c.SetUsageTemplate(strings.Replace(c.UsageTemplate(), localFlags, text, 1))
		return c.Parent().UsageFunc()(c)
	})
}

func groupedFlags(all *pflag.FlagSet, groups []FlagGroup) string {
	var b strings.Builder
	section := func(title string, has func(name string) bool) {
		var some pflag.FlagSet
		all.VisitAll(func(f *pflag.Flag) {
			if has(f.Name) {
				some.AddFlag(f)
			}
		})
		if some.HasAvailableFlags() {
			b.WriteString("\n" + title + ":\n" + some.FlagUsagesWrapped(80))
		}
	}
	section("Flags", func(name string) bool {
		return !slices.ContainsFunc(groups, func(g FlagGroup) bool { return slices.Contains(g.Flags, name) })
	})
	for _, g := range groups {
		section(g.Title, func(name string) bool { return slices.Contains(g.Flags, name) })
	}
	return strings.Trim(b.String(), "\n")
}

// Lifetime returns the context of a server. With a life line it ends when
// standard input does, because then the process that started the server is gone.
// SIGHUP does not end it.
func (s *Shell) Lifetime(ctx context.Context, lifeLine bool) (context.Context, context.CancelFunc) {
	OutliveReaders()
	// A terminal that closes, or an operator who expects files to be read again: they are anyway.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, stop := context.WithCancel(ctx)
	if lifeLine {
		go func() { // ends with the process: a read of standard input cannot be called off
			_, _ = io.Copy(io.Discard, s.In)
			stop()
		}()
	}
	return ctx, stop
}

// ReadInput reads from standard input, or gives up when ctx ends. What it has
// begun to read is then lost, so it is for commands that end with ctx.
func (s *Shell) ReadInput(ctx context.Context, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1) // buffered: a reader that nothing waits for must not hang on the send
	go func() {
		data, err := read(s.In)
		got <- result{data, err}
	}()
	select {
	case r := <-got:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// OutliveReaders lets a write to a pipe without a reader fail,
// instead of ending the process: for a server, or a command that must not stop halfway.
// The signal is caught and not ignored, because machines would inherit that.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// CommandLast treats the last arguments of c as a remote command with flags of its own.
// The flags of c may precede the first argument (such as the image) or directly follow
// it; they end at the remote command or at "--". c.RunE receives the first argument,
// followed by the remote command.
func (s *Shell) CommandLast(c *cobra.Command) {
	if len(s.Args) > 0 && strings.HasPrefix(s.Args[0], cobra.ShellCompRequestCmd) {
		return // flags are completed wherever they may be
	}
	c.Flags().SetInterspersed(false)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if c.Flags().ArgsLenAtDash() < 0 {
			rest, err := flagsBehind(c, args)
			if err != nil {
				return err
			}
			args = append(args[:1:1], rest...)
		}
		return run(c, args)
	}
}

// flagsBehind parses the flags that follow the first argument, and returns the arguments
// after them.
func flagsBehind(c *cobra.Command, args []string) ([]string, error) {
	err := c.Flags().Parse(args[1:])
	if help, _ := c.Flags().GetBool("help"); help && err == nil {
		err = pflag.ErrHelp
	}
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return c.Flags().Args(), err
	}
	return nil, Hint(bourse.Errorf(bourse.CodeInvalid, "%w", err),
		c.CommandPath()+" "+args[0]+" -- COMMAND, with the command's own flags after --", c.CommandPath()+" --help")
}
