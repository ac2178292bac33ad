package view

import (
	_ "embed" // for the schemas
	"fmt"
	"slices"

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
	//go:embed schema_4.sql
	schema4 string
)

// signedSince returns the first schema whose files have proofs of what is in
// them.
func signedSince(history []string) int { return slices.Index(history, schema4) + 1 }

// migrations make the present schema: the n-th takes a file of schema n to
// n+1, and stays as it is once it was released. A file that has more of them
// behind it than there are is of a newer release.
func migrations() []string { return []string{schema, schema2, schema3, schema4} }

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

// adoptUnsigned makes what it can of a file of a release that did not sign. Owned
// rows come back from their sites. Of the shared ones a broker vouches for what
// it has; a worker may not, and gets them from a broker.
func (b *batch) adoptUnsigned() error {
	for s := range b.base.heads {
		if err := b.disown(s.Site); err != nil {
			return err
		}
		if err := b.forget(s); err != nil {
			return err
		}
	}
	if err := b.renew(b.self.Epoch); err != nil {
		return err
	}
	by := &author{stream: b.self, birth: b.pen.birth}
	if err := by.read(b.notary.keys); err != nil {
		return err
	}
	vouch := func(r record) error {
		if !by.mayShare() {
			return b.remove(r)
		}
		old := r
		r.Stream, r.Seq = b.self, 1
		if err := b.prove(&r); err != nil {
			return err
		}
		return b.replace(&old, r)
	}
	var found []record
	err := allShared(b.conn, b.tables, func(r record) error {
		found = append(found, r)
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range found {
		if err := vouch(r); err != nil {
			return err
		}
	}
	return nil
}

// allShared calls each with every shared row and tombstone.
func allShared(c *sqlite.Conn, all tables, each func(record) error) error {
	for _, t := range all.sorted() {
		if !t.shared {
			continue
		}
		if err := records(c, t.all, t.scan, each); err != nil {
			return err
		}
	}
	if err := records(c, selectTombstones, tombstoneAt, each); err != nil {
		return err
	}
	return records(c, selectUnknown+" WHERE shared = 1", scanUnknown, each)
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
