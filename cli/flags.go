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

// Exactly requires n arguments. Its error shows the command's usage.
func Exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return UsageError(c)
		}
		return nil
	}
}

// AtLeast requires at least n arguments.
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

// FlagError prefixes err with the flag that caused it. It returns nil if err is nil.
func FlagError(flag string, err error) error {
	if err == nil {
		return nil
	}
	return bourse.Errorf(bourse.CodeOf(err), "%s: %w", flag, err)
}

// Each calls do for every word in order. It continues after failures and returns all of
// them.
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
	Flags []string // names; flags that the command lacks are ignored
}

// localFlags is the part of cobra's usage template that prints a command's own flags.
const localFlags = "Flags:\n{{.LocalFlags.FlagUsagesWrapped 80 | trimTrailingWhitespaces}}"

// GroupFlags makes c's help print its flags in the given groups, after the flags that
// belong to no group.
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

// Lifetime returns the context for a server. SIGHUP does not end it. If lifeLine is
// set, the context ends when standard input is closed, which means that the process
// that started the server has exited.
func (s *Shell) Lifetime(ctx context.Context, lifeLine bool) (context.Context, context.CancelFunc) {
	OutliveReaders()
	// SIGHUP comes from a closed terminal, or from an operator who expects
	// configuration files to be reread, which happens anyway.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	ctx, stop := context.WithCancel(ctx)
	if lifeLine {
		go func() { // runs until the process exits, because a read of standard input cannot be canceled
			_, _ = io.Copy(io.Discard, s.In)
			stop()
		}()
	}
	return ctx, stop
}

// ReadInput reads from standard input until ctx is done. In that case, input may be
// lost, so only commands that end with ctx may use it.
func (s *Shell) ReadInput(ctx context.Context, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1) // buffered, so that the goroutine can exit even if nobody receives
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

// OutliveReaders makes a write to a pipe without a reader fail instead of ending the
// process. It is for servers and for commands that must not stop halfway. SIGPIPE is
// caught rather than ignored, because machines would inherit an ignored signal.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// CommandLast treats the last arguments of c as a remote command with flags of its own.
// The flags of c may precede the first argument (such as the image) or directly follow
// it; they end at the remote command or at "--". c.RunE receives the first argument,
// followed by the remote command.
func (s *Shell) CommandLast(c *cobra.Command) {
	if len(s.Args) > 0 && strings.HasPrefix(s.Args[0], cobra.ShellCompRequestCmd) {
		return // completion accepts flags anywhere
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
