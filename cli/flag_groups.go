package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
