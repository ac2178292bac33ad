package app

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// maxInput limits the size of a file or of standard input, in bytes.
const maxInput = 1 << 20

func newSet(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:   "set NAME=VALUE...",
		Short: "Set secrets of an app",
		Long: `Set an app's secrets. Machines receive them in their environment the next time they
start. A secret takes precedence over a variable of the same name in the config.

A VALUE of - is read from standard input, without the last newline. A VALUE of @FILE
is read from a file, unchanged. Prefer these forms, because other users of this host
can see command lines.`,
		Example: `  bourse secrets set DATABASE_URL=- < url.txt
  bourse secrets set TLS_KEY=@key.pem LOG_LEVEL=debug -a shop`,
		Args:              cli.AtLeast(1),
		ValidArgsFunction: completeSecret(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			names, values, err := readPairs(c.Context(), s, args)
			if err != nil {
				return err
			}
			return change(c.Context(), s, app, names, values)
		},
	}
	s.BindApp(c, &app)
	return c
}

// readPairs parses NAME=VALUE arguments. Errors never contain values.
func readPairs(ctx context.Context, s *cli.Shell, args []string) (names []string, values map[string]*string, err error) {
	values = map[string]*string{}
	stdin := ""
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "argument %d: use NAME=VALUE, NAME=- or NAME=@FILE", i+1)
		}
		if _, twice := values[name]; twice {
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "%s is given more than once", cli.Clean(name))
		}
		switch file, isFile := strings.CutPrefix(value, "@"); {
		case value == "-" && stdin != "":
			return nil, nil, bourse.Errorf(bourse.CodeInvalid, "%s and %s: only one value can be read from standard input", cli.Clean(stdin), cli.Clean(name))
		case value == "-":
			stdin = name
			value, err = readStdin(ctx, s)
			value = strings.TrimSuffix(strings.TrimSuffix(value, "\n"), "\r")
		case isFile:
			value, err = readFile(file)
		}
		if err != nil {
			return nil, nil, err
		}
		names, values[name] = append(names, name), &value
	}
	return names, values, nil
}

func readStdin(ctx context.Context, s *cli.Shell) (string, error) {
	if s.Interactive() {
		s.Note("type the value, then Ctrl-D; the terminal shows what you type")
	}
	text, err := s.ReadInput(ctx, func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxInput+1)) })
	return bounded(text, err, "standard input")
}

func readFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	defer func() { _ = f.Close() }() // the file was only read, so closing it cannot lose data
	text, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	return bounded(text, err, name)
}

func bounded(text []byte, err error, what string) (string, error) {
	if err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "read %s: %w", what, err)
	}
	if len(text) > maxInput {
		return "", bourse.Errorf(bourse.CodeInvalid, "%s exceeds %d bytes", what, maxInput)
	}
	return string(text), nil
}
