package app

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newImport(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:   "import",
		Short: "Set an app's secrets from standard input",
		Long: `Set an app's secrets from standard input, one NAME=VALUE per line. Empty lines and
lines that start with # are ignored. Quotes around a value are removed. A value that
starts with """ extends to the next """, possibly over several lines.`,
		Example: "  bourse secrets import -a shop < .env",
		Args:    cli.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := readStdin(c.Context(), s)
			if err != nil {
				return err
			}
			names, values, err := parseLines(text)
			if err != nil {
				return err
			}
			return change(c.Context(), s, app, names, values)
		},
	}
	s.BindApp(c, &app)
	return c
}

const longQuote = `"""`

// parseLines parses NAME=VALUE lines. If a name occurs more than once, its last value is used.
// Errors never contain values.
func parseLines(text string) (names []string, values map[string]*string, err error) {
	values = map[string]*string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line, at := strings.TrimSpace(lines[i]), i+1
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "line %d: use NAME=VALUE", at)
		}
		value = strings.TrimSpace(value)
		if rest, long := strings.CutPrefix(value, longQuote); long {
			for !strings.Contains(rest, longQuote) {
				if i++; i == len(lines) {
					return nil, nil, bourse.Errorf(bourse.CodeInvalid, `line %d: this value has no closing """`, at)
				}
				rest += "\n" + lines[i]
			}
			value, _, _ = strings.Cut(rest, longQuote)
		} else if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		if _, twice := values[name]; !twice {
			names = append(names, name)
		}
		values[name] = &value
	}
	if len(names) == 0 {
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "standard input contains no secrets: use NAME=VALUE lines")
	}
	return names, values, nil
}
