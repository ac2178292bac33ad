package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// Version says which release this is and what it was built from.
type Version struct {
	Release string `json:"version"`          // "" when built without one
	Commit  string `json:"commit,omitempty"` // of the source, as far as known
}

// String gives one line.
func (v Version) String() string {
	s := "bourse " + orElse(v.Release, "unreleased")
	if v.Commit != "" {
		s += " (" + v.Commit + ")"
	}
	return fmt.Sprintf("%s %s %s/%s", s, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (s *shell) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show which release this is",
		Args:  none,
		RunE: func(*cobra.Command, []string) error {
			if s.json {
				return s.printJSON(s.Version)
			}
			_, err := fmt.Fprintln(s.Out, s.Version)
			return err
		},
	}
}
