// Package sql implements "bourse sql", which queries the view and prints rows as a table,
// as CSV or as JSON. With --watch, it prints every change. The view's data comes from other
// servers, so control characters are escaped if the output is a terminal.
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

// maxStatement is the maximum length of a statement on standard input, in bytes. The
// server has the same limit.
const maxStatement = 64 << 10

// options are the flags of "bourse sql".
type options struct {
	params, key        []string
	csv, watch, tables bool
}

// New returns the "sql" command.
func New(s *cli.Shell) *cobra.Command {
	var f options
	c := &cobra.Command{
		Use:   "sql [STATEMENT]",
		Short: "Query the machines, workers and apps of all regions with SQL",
		Long: `Query the view, the copy of the whole cluster that every server keeps, with SQLite's
SQL. Queries are read-only. Rows may be slightly outdated; if a row's host_status is
not ok, the row shows the host's last known state.

The statement is the argument, or standard input if the argument is - or if there is
no argument and standard input is not a terminal. Without a statement, the tables are
listed, as with --tables.

Each --param is the value for a ? in the statement, in order, or for :NAME if written
as :NAME=VALUE. Plain numbers and null are passed as such. To pass "42" as text, use
quotes.

With --json, rows are printed as an array of objects. With --csv, they are printed
according to RFC 4180: lines end with CRLF, NULL is an empty field, and an empty text
is "". If the server truncated the answer at its limit, the exit status is 2.

With --watch, all changes are printed until Ctrl-C, even across lost connections. On a
terminal, the table is updated in place: + marks new rows and ~ changed ones, and new
rows come last regardless of ORDER BY. Otherwise each row starts with the kind of
change (row, insert, update, delete). With --json, each line is an object
{"kind", "change", "id", "row"}. After "restart", all rows are printed again.`,
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
	flags.StringArrayVarP(&f.params, "param", "p", nil, "`value` for a ? in the statement, or :NAME=VALUE; may be repeated")
	flags.BoolVar(&f.csv, "csv", false, "print rows as CSV")
	flags.BoolVarP(&f.watch, "watch", "w", false, "print every change until Ctrl-C")
	flags.StringSliceVar(&f.key, "key", nil, "`columns` that identify a row with --watch (default: id, then name, then all columns)")
	flags.BoolVar(&f.tables, "tables", false, "list the tables and their columns")
	c.MarkFlagsMutuallyExclusive("tables", "watch")
	_ = c.RegisterFlagCompletionFunc("param", cobra.NoFileCompletions) // fails only if the flag does not exist
	return c
}

func run(ctx context.Context, s *cli.Shell, f options, args []string) error {
	if s.JSON && f.csv {
		return bourse.Errorf(bourse.CodeInvalid, "--json and --csv are mutually exclusive")
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
		return context.Cause(ctx) // with --watch, the command normally ends this way
	}
	if bourse.CodeOf(err) == bourse.CodeTimeout {
		return cli.Hint(err, smallerResultHint)
	}
	return withTables(ctx, s, err)
}

const smallerResultHint = "a smaller result, with WHERE or LIMIT"

// statement returns the statement to run, or "" if none was given.
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
		return "", bourse.Errorf(bourse.CodeInvalid, "standard input contains no statement")
	}
	return statement, nil
}

// ask runs a query and prints its rows as they arrive.
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
			return cli.AfterResult(errors.Join(err, out.flush()))
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
		err := bourse.Errorf(bourse.CodeInvalid, "the answer was truncated after %s, the server's limit", cli.Count(end.Rows, "row"))
		return cli.AfterResult(cli.Hint(err, smallerResultHint))
	}
	if s.Out.TTY && s.Err.TTY && !s.JSON && !f.csv {
		s.Note(cli.Count(end.Rows, "row") + " in " + cli.Took(time.Duration(end.MS*float64(time.Millisecond))))
	}
	return nil
}
