package cli

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// Version is which release this is and what it was built from.
type Version struct {
	Release string `json:"version"`          // "" when built without one
	Commit  string `json:"commit,omitempty"` // of the source, as far as known
}

// String returns one line.
func (v Version) String() string {
	s := "bourse " + cmp.Or(v.Release, "unreleased")
	if v.Commit != "" {
		s += " (" + v.Commit + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", s, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (s *Shell) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show which release this is",
		Example: "  bourse version --json",
		Args:    NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if s.JSON {
				return s.PrintJSON(s.Version)
			}
			_, err := fmt.Fprintln(s.Out, s.Version)
			return err
		},
	}
}
