package schema

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// Run executes a statement that returns no rows. The connection caches the prepared statement.
func Run(c *sqlite.Conn, sql string, args ...any) error {
	return Query(c, sql, func(*sqlite.Stmt) error { return nil }, args...)
}

// Query executes a statement and calls row for each row of the result.
func Query(c *sqlite.Conn, sql string, row func(*sqlite.Stmt) error, args ...any) (err error) {
	s, err := c.Prepare(sql)
	if err != nil {
		return err
	}
	for i, a := range args {
		bind(s, i+1, a)
	}
	for {
		ok, err := s.Step()
		if err != nil {
			return err // Step has already reset the statement
		}
		if !ok {
			return nil
		}
		if err := row(s); err != nil {
			_ = s.Reset() // Reset returns the error that Step has already returned
			return err
		}
	}
}

// bind sets a statement's i-th parameter, counted from 1. It panics if the value's type is not
// supported.
func bind(s *sqlite.Stmt, i int, value any) {
	switch v := value.(type) {
	case nil:
		s.BindNull(i)
	case int64:
		s.BindInt64(i, v)
	case int:
		s.BindInt64(i, int64(v))
	case uint64:
		s.BindInt64(i, int64(v)) // hashes use all 64 bits; epochs and sequence numbers fit into an int64
	case bool:
		s.BindBool(i, v)
	case float64:
		s.BindFloat(i, v)
	case string:
		s.BindText(i, v)
	case bourse.WorkerID:
		s.BindText(i, string(v))
	case []byte:
		s.BindBytes(i, v)
	default:
		panic(fmt.Sprintf("view: cannot bind a %T", value))
	}
}

// ValueAt returns the value in the i-th column of the current row, counted from 0.
func ValueAt(s *sqlite.Stmt, i int) any {
	switch s.ColumnType(i) {
	case sqlite.TypeInteger:
		return s.ColumnInt64(i)
	case sqlite.TypeFloat:
		return s.ColumnFloat(i)
	case sqlite.TypeText:
		return s.ColumnText(i)
	case sqlite.TypeBlob:
		b := make([]byte, s.ColumnLen(i))
		s.ColumnBytes(i, b)
		return b
	case sqlite.TypeNull:
	}
	return nil
}

// InTransaction calls f within a transaction. It commits the transaction if f succeeds; otherwise,
// it rolls the transaction back.
func InTransaction(c *sqlite.Conn, f func() error) error {
	if err := Run(c, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f()
	if err == nil {
		err = Run(c, "COMMIT")
	}
	if err != nil && !c.AutocommitEnabled() {
		_ = Run(c, "ROLLBACK") // the first error is returned instead
	}
	return err
}
