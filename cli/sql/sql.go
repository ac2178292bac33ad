// Package sql asks the view in SQL, and prints the rows: as a table, as CSV or as
// JSON, once or with every change. What the view holds was written by others, so
// nothing of it reaches a terminal unescaped.
package sql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/machinesapi"
)

// maxStatement bounds a statement that is read from standard input, in bytes:
// as the server does.
const maxStatement = 64 << 10

// options are the flags of "bourse sql".
type options struct {
	params, key        []string
	csv, watch, tables bool
}

// New returns the command that asks the view in SQL.
func New(s *cli.Shell) *cobra.Command {
	var f options
	c := &cobra.Command{
		Use:   "sql [STATEMENT]",
		Short: "Ask the view: machines, workers and apps of all regions, in SQL",
		Long: `Ask the view, the copy of the whole cluster that every server keeps, in SQLite's
SQL. It only reads. What the view holds is a hint: a row whose host_status is not
ok shows its host as it last was.

The statement is the argument, or standard input when that is - or missing and
standard input is no terminal. Without any, the tables are listed, as with --tables.

A --param is the value of a ? of the statement, in order; or, written :NAME=VALUE,
for :NAME. Plain numbers and null are taken as such, "42" in quotes as text.

With --json the rows are an array of objects, with --csv RFC 4180: lines end in
CRLF, NULL is nothing, an empty text is "". An answer that the server cut off at
its limit ends with exit status 2.

--watch goes on with every change until Ctrl-C, also past lost connections. On a
terminal the table stays in its place; + marks what is new, ~ what has changed,
and new rows come last whatever ORDER BY is. Otherwise each row has its change
before it (row, insert, update, delete); with --json each is an object on a
line: {"kind", "change", "id", "row"}. After "restart", all rows follow again.`,
		Example: `  bourse sql "SELECT app, region, count(*) FROM machines GROUP BY app, region"
  bourse sql "SELECT id, state FROM machines WHERE app = ?" --param shop --watch
  bourse sql --csv "SELECT * FROM workers" > workers.csv`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			return run(c.Context(), s, f, args)
		},
	}
	flags := c.Flags()
	flags.StringArrayVarP(&f.params, "param", "p", nil, "`value` for a ? of the statement, or :NAME=VALUE; may be repeated")
	flags.BoolVar(&f.csv, "csv", false, "print CSV")
	flags.BoolVarP(&f.watch, "watch", "w", false, "go on with every change")
	flags.StringSliceVar(&f.key, "key", nil, "with --watch: the `columns` that tell rows apart (default: id, else name, else all)")
	flags.BoolVar(&f.tables, "tables", false, "list what can be asked: tables and their columns")
	c.MarkFlagsMutuallyExclusive("tables", "watch")
	_ = c.RegisterFlagCompletionFunc("param", cobra.NoFileCompletions) // fails for an unknown flag only
	return c
}

func run(ctx context.Context, s *cli.Shell, f options, args []string) error {
	if s.JSON && f.csv {
		return bourse.Errorf(bourse.CodeInvalid, "--json and --csv: choose one")
	}
	if f.tables {
		return listTables(ctx, s, f)
	}
	statement, err := statement(ctx, s, args)
	if err != nil {
		return err
	}
	if statement == "" {
		return listTables(ctx, s, f)
	}
	q := machinesapi.ViewQuery{Statement: statement, Key: f.key}
	if q.Params, q.Named, err = parseParams(f.params); err != nil {
		return err
	}
	if f.watch {
		err = watchQuery(ctx, s, q, f)
	} else {
		err = ask(ctx, s, q, f)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // the way to end --watch
	}
	if bourse.CodeOf(err) == bourse.CodeTimeout {
		return cli.Hint(err, askLess)
	}
	return withTables(ctx, s, err)
}

const askLess = "a smaller result, with WHERE or LIMIT"

// statement returns the statement to ask, "" when there is none.
func statement(ctx context.Context, s *cli.Shell, args []string) (string, error) {
	if len(args) == 1 && args[0] != "-" {
		statement := strings.TrimSpace(args[0])
		if statement == "" {
			return "", bourse.Errorf(bourse.CodeInvalid, "the statement is empty")
		}
		return statement, nil
	}
	if len(args) == 0 && s.In.TTY {
		return "", nil
	}
	text, err := s.ReadInput(ctx, func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, maxStatement+1)) })
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case err != nil:
		return "", fmt.Errorf("read the statement: %w", err)
	case len(text) > maxStatement:
		return "", bourse.Errorf(bourse.CodeInvalid, "the statement is longer than %d bytes", maxStatement)
	}
	statement := strings.TrimSpace(string(text))
	if statement == "" && len(args) == 1 {
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input has no statement")
	}
	return statement, nil
}

// ask asks once and prints the rows as they come.
func ask(ctx context.Context, s *cli.Shell, q machinesapi.ViewQuery, f options) error {
	out := newRowPrinter(s, f)
	stop := cli.Spin(s.Err, "asking the view")
	defer stop()
	var end machinesapi.ViewEnd
	rows := false
	for line, err := range s.Client().Query(ctx, q) {
		stop()
		switch {
		case err != nil && rows:
			return cli.Beside(errors.Join(err, out.flush()))
		case err != nil:
			return errors.Join(err, out.flush())
		case line.Columns != nil:
			err = out.begin(line.Columns)
		case line.Row != nil:
			rows, err = true, out.row(rowOf(line.Row))
		case line.End != nil:
			end, err = *line.End, out.end()
		}
		if err != nil {
			return err
		}
	}
	if end.Truncated {
		err := bourse.Errorf(bourse.CodeInvalid, "the answer was cut off after %s: that is the server's limit", cli.Count(end.Rows, "row"))
		return cli.Beside(cli.Hint(err, askLess))
	}
	if s.Out.TTY && s.Err.TTY && !s.JSON && !f.csv {
		s.Note(cli.Count(end.Rows, "row") + " in " + cli.Took(time.Duration(end.MS*float64(time.Millisecond))))
	}
	return nil
}
