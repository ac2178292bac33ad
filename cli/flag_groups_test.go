package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestGroupedFlags checks that every flag is printed once, whether it belongs to a
// group or not, and that empty groups are omitted.
func TestGroupedFlags(t *testing.T) {
	s := &Shell{Env: Env{Getenv: func(string) string { return "" }}}
	c := &cobra.Command{Use: "launch", RunE: func(*cobra.Command, []string) error { return nil }}
	for _, name := range []string{"name", "region", "zone", "memory"} {
		c.Flags().String(name, "", "some `text`")
	}
	GroupFlags(c, FlagGroup{"Place", []string{"region", "zone", "planet"}}, FlagGroup{"Tasks", []string{"task"}}, FlagGroup{"Size", []string{"memory"}})
	root := Root(s, func(*Shell) []Group { return []Group{{Title: "Machines", Commands: []*cobra.Command{c}}} })
	c.InitDefaultHelpFlag()
	help := c.UsageString()
	at := -1
	for _, want := range []string{"\nFlags:\n", "--help", "--name", "\nPlace:\n", "--region", "--zone", "\nSize:\n", "--memory", "\nGlobal Flags:\n"} {
		i := strings.Index(help, want)
		if i <= at || strings.Count(help, want) != 1 {
			t.Errorf("%q is at offset %d after %d and occurs %d times, want it later and once", want, i, at, strings.Count(help, want))
		}
		at = i
	}
	if strings.Contains(help, "Tasks") || strings.Contains(help, "{{") {
		t.Errorf("unexpected help:\n%s", help)
	}
	if other := root.UsageString(); strings.Contains(other, "Place:") {
		t.Errorf("unexpected help of another command:\n%s", other)
	}
}
