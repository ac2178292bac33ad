package cli

import (
	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
)

// exactly wants n arguments; the error shows which.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return wanted(c)
		}
		return nil
	}
}

// atLeast wants n arguments or more.
func atLeast(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return wanted(c)
		}
		return nil
	}
}

func none(c *cobra.Command, args []string) error { return exactly(0)(c, args) }

func wanted(c *cobra.Command) error {
	return bourse.Errorf(bourse.CodeInvalid, "want: %s", c.UseLine())
}
