package view

import (
	_ "embed" // for the schemas
	"fmt"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

var (
	//go:embed schema.sql
	schema string
	//go:embed schema_2.sql
	schema2 string
	//go:embed schema_3.sql
	schema3 string
)

// migrations make the present schema: the n-th takes a file of schema n to
// n+1, and stays as it is once it was released. A file that has more of them
// behind it than there are is of a newer release.
func migrations() []string { return []string{schema, schema2, schema3} }

// migrate brings the file to the newest schema and tells which it had, 0 for a
// new file. Each step is whole or not at all.
func migrate(c *sqlite.Conn, history []string) (from int, err error) {
	err = query(c, "PRAGMA user_version", func(s *sqlite.Stmt) error {
		from = s.ColumnInt(0)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the schema's version: %w", err)
	}
	if from < 0 || from > len(history) {
		return from, &unusable{fmt.Errorf("it has schema %d, this release knows %d", from, len(history))}
	}
	for n := from; n < len(history); n++ {
		err := inTransaction(c, func() error {
			if err := sqlitex.ExecuteScript(c, history[n], nil); err != nil {
				return err
			}
			return run(c, fmt.Sprintf("PRAGMA user_version = %d", n+1))
		})
		if err != nil {
			return from, fmt.Errorf("migrate to schema %d: %w", n+1, err)
		}
	}
	return from, nil
}

// adopt puts what a newer release has sent where this one, which is that newer
// release now, keeps it: columns out of extra, rows out of unknown_rows. A
// value that does not fit after all goes.
func (b *batch) adopt() error {
	for _, t := range b.tables {
		if err := b.adoptAll(t.all+" WHERE extra IS NOT NULL", t.scan); err != nil {
			return err
		}
	}
	for name := range b.tables {
		if err := b.adoptAll(selectUnknown+" WHERE tbl = ?", scanUnknown, name); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) adoptAll(sql string, scan func(*sqlite.Stmt) (record, error), args ...any) error {
	var found []record
	err := query(b.conn, sql, func(s *sqlite.Stmt) error {
		r, err := scan(s)
		found = append(found, r)
		return err
	}, args...)
	if err != nil {
		return err
	}
	for _, old := range found {
		if err := b.adoptRow(old); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) adoptRow(old record) error {
	t := b.tables[old.table]
	if t.shared != old.shared || old.deleted && old.table == TableApps {
		b.account(old, -1)
		return deleteUnknown(b.conn, old)
	}
	if err := deleteUnknown(b.conn, old); err != nil { // none if it was a column only
		return err
	}
	b.account(old, -1)
	kept := old
	kept.cols = nil
	for _, c := range old.cols {
		if value, err := t.value(c.name, c.value); err == nil && value != nil {
			kept.cols = append(kept.cols, column{c.name, value})
		}
	}
	return b.replace(nil, kept)
}
