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
		Short: "Set secrets of an app to what standard input has, NAME=VALUE a line",
		Long: `Set secrets of an app to what standard input has: NAME=VALUE on each line. Empty
lines and those that begin with # are left out. Quotes around a value are not
part of it; one that begins with """ ends with the next """, also lines later.`,
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

// parseLines reads NAME=VALUE lines. Of a name that is there twice the last one
// counts. Its errors show no value.
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
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "line %d: want NAME=VALUE", at)
		}
		value = strings.TrimSpace(value)
		if rest, long := strings.CutPrefix(value, longQuote); long {
			for !strings.Contains(rest, longQuote) {
				if i++; i == len(lines) {
					return nil, nil, bourse.Errorf(bourse.CodeInvalid, `line %d: no """ ends this value`, at)
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
		return nil, nil, bourse.Errorf(bourse.CodeInvalid, "standard input has no secret: want NAME=VALUE lines")
	}
	return names, values, nil
}
