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

// Exactly returns a validator that requires exactly n arguments. Its error shows the command's
// usage.
func Exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return UsageError(c)
		}
		return nil
	}
}

// AtLeast returns a validator that requires at least n arguments.
func AtLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return UsageError(c)
		}
		return nil
	}
}

// NoArgs accepts no arguments.
func NoArgs(c *cobra.Command, args []string) error { return Exactly(0)(c, args) }

// UsageError returns the error for wrong arguments to c. It shows the command's usage.
func UsageError(c *cobra.Command) error {
	return bourse.Errorf(bourse.CodeInvalid, "usage: %s", c.UseLine())
}

// JoinProblems combines all problems into one invalid error. It returns nil if there
// are none.
func JoinProblems(problems []error) error {
	if err := errors.Join(problems...); err != nil {
		return &bourse.Error{Code: bourse.CodeInvalid, Message: err.Error(), Err: err}
	}
	return nil
}

// FlagError prefixes err with the name of the flag that caused it. It returns nil if err is
// nil.
func FlagError(flag string, err error) error {
	if err == nil {
		return nil
	}
	return bourse.Errorf(bourse.CodeOf(err), "%s: %w", flag, err)
}

// Each calls do for each word, in order, even if earlier calls fail. It returns all errors.
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

// FlagGroup is a titled section of flags in a command's help.
type FlagGroup struct {
	Title string
	Flags []string // names of flags; those that the command does not have are ignored
}

// localFlags is the part of cobra's usage template that prints a command's own flags.
const localFlags = "Flags:\n{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}"

// GroupFlags arranges the flags in c's help in the given groups. Flags that belong to no group come
// first.
func GroupFlags(c *cobra.Command, groups ...FlagGroup) {
	c.SetUsageFunc(func(c *cobra.Command) error {
		text := groupedFlags(c.LocalFlags(), groups)
		c.SetUsageTemplate(strings.Replace(c.UsageTemplate(), localFlags, text, 1))
		return c.Parent().UsageFunc()(c)
	})
}

func groupedFlags(all *pflag.FlagSet, groups []FlagGroup) string {
	var b strings.Builder
	section := func(title string, include func(name string) bool) {
		var some pflag.FlagSet
		all.VisitAll(func(f *pflag.Flag) {
			if include(f.Name) {
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

// Lifetime returns a context for a server, and makes the process ignore SIGHUP. If lifeLine is set,
// the context is canceled when standard input is closed, which means that the process that started
// the server has exited.
func (s *Shell) Lifetime(ctx context.Context, lifeLine bool) (context.Context, context.CancelFunc) {
	IgnoreSIGPIPE()
	// Ignore SIGHUP. The kernel sends it when a terminal is closed, which must not stop the server.
	// Operators send it to reload configuration files, but the server reloads changed files anyway.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, stop := context.WithCancel(ctx)
	if lifeLine {
		go func() { // this goroutine runs until the process exits, because reading standard input cannot be canceled
			_, _ = io.Copy(io.Discard, s.In)
			stop()
		}()
	}
	return ctx, stop
}

// ReadInput calls read with standard input and returns its result, unless ctx is done first. Some
// input may then be lost, so only commands that exit when ctx is done may use it.
func (s *Shell) ReadInput(ctx context.Context, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1) // buffered, so that the goroutine can exit even if nobody receives the result
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

// IgnoreSIGPIPE makes writes to a closed pipe return an error instead of killing the process. It is
// for servers, and for commands that must not stop halfway. It catches SIGPIPE instead of ignoring
// it, because machines would inherit an ignored signal.
func IgnoreSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// CommandLast makes c accept a remote command, which may have its own flags, after its first
// argument (such as an image). The flags of c may come before or directly after the first argument.
// They end where the remote command or "--" begins. c.RunE receives the first argument, followed by
// the remote command.
func (s *Shell) CommandLast(c *cobra.Command) {
	if len(s.Args) > 0 && strings.HasPrefix(s.Args[0], cobra.ShellCompRequestCmd) {
		return // keep the default for completion, which accepts flags anywhere
	}
	c.Flags().SetInterspersed(false)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if c.Flags().ArgsLenAtDash() < 0 {
			rest, err := flagsAfter(c, args)
			if err != nil {
				return err
			}
			args = append(args[:1:1], rest...)
		}
		return run(c, args)
	}
}

// flagsAfter parses the flags that follow the first argument, and returns the
// remaining arguments.
func flagsAfter(c *cobra.Command, args []string) ([]string, error) {
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
