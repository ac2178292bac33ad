package query

import (
	"testing"

	"pgregory.net/rapid"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// TestReplacedFunctionsAgreeWithSQLite checks that the replacement functions return the same
// results as SQLite's own.
func TestReplacedFunctionsAgreeWithSQLite(t *testing.T) {
	var conns [2]*sqlite.Conn
	for i := range conns {
		var err error
		if conns[i], err = sqlite.OpenConn(":memory:", sqlite.OpenReadWrite); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	if err := replaceFunctions(conns[1]); err != nil {
		t.Fatal(err)
	}
	const statement = `SELECT instr(?1, ?2), replace(?1, ?2, ?3), trim(?1), ltrim(?1), rtrim(?1), trim(?1, ?2), ltrim(?1, ?2), rtrim(?1, ?2),
		typeof(replace(?1, '', 'x')), typeof(instr(?1, ?2)), typeof(trim(?1, ?2))`
	value := rapid.OneOf(
		rapid.Map(rapid.StringMatching(`[ aäb1\n]{0,6}`), func(s string) any { return s }),
		rapid.Map(rapid.Int64Range(-111, 111), func(n int64) any { return n }),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte("ab")), 0, 4), func(b []byte) any { return b }),
		rapid.Just[any](nil), rapid.Just[any](1.5),
	)
	rapid.Check(t, func(t *rapid.T) {
		args := []any{value.Draw(t, "1"), value.Draw(t, "2"), value.Draw(t, "3")}
		var got [2]string
		for i, conn := range conns {
			err := sqlitex.Execute(conn, statement, &sqlitex.ExecOptions{Args: args, ResultFunc: func(stmt *sqlite.Stmt) error {
				var r record
				r.read(stmt)
				got[i] = string(r.text)
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got[0] != got[1] {
			t.Fatalf("for %#v\nSQLite returns %s\nthe replacement %s", args, got[0], got[1])
		}
	})
}
