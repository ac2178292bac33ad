package cli

import (
	"errors"

	"github.com/spf13/cobra"

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
