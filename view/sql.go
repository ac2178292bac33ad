package view

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// run carries out a statement that gives no rows. The statement stays
// prepared in the connection.
func run(c *sqlite.Conn, sql string, args ...any) error {
	return query(c, sql, func(*sqlite.Stmt) error { return nil }, args...)
}

// query calls row with each row that a statement gives.
func query(c *sqlite.Conn, sql string, row func(*sqlite.Stmt) error, args ...any) (err error) {
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
			return err // Step has reset it
		}
		if !ok {
			return nil
		}
		if err := row(s); err != nil {
			_ = s.Reset() // says what Step said
			return err
		}
	}
}

func bind(s *sqlite.Stmt, i int, value any) {
	switch v := value.(type) {
	case nil:
		s.BindNull(i)
	case int64:
		s.BindInt64(i, v)
	case int:
		s.BindInt64(i, int64(v))
	case uint64:
		s.BindInt64(i, int64(v)) // hashes use all bits; epochs and numbers are bounded
	case Clock:
		s.BindInt64(i, int64(v))
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

// valueAt reads a column of a result.
func valueAt(s *sqlite.Stmt, i int) Value {
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
