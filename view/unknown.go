package view

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

const selectUnknown = "SELECT site, key, epoch, seq, at, hash, tbl, shared, clock, deleted, columns FROM unknown_rows"

func scanUnknown(s *sqlite.Stmt) (record, error) {
	r := record{
		stamp: stampOf(s), table: s.ColumnText(6), key: s.ColumnText(1), shared: s.ColumnBool(7), deleted: s.ColumnBool(9),
		clock: Clock(s.ColumnInt64(8)), hash: uint64(s.ColumnInt64(5)),
	}
	var err error
	if r.cols, err = decodeExtra(s.ColumnText(10)); err != nil {
		return r, fmt.Errorf("columns of row %s in %s: %w", bourse.Quoted(r.key), r.table, err)
	}
	return r, nil
}

// findUnknown reads a row of a table that only a newer release knows.
func findUnknown(c *sqlite.Conn, table string, shared bool, site bourse.WorkerID, key string) (r record, ok bool, err error) {
	sql, args := selectUnknown+" WHERE tbl = ? AND shared = 1 AND key = ?", []any{table, key}
	if !shared {
		sql, args = selectUnknown+" WHERE tbl = ? AND shared = 0 AND key = ? AND site = ?", []any{table, key, site}
	}
	err = query(c, sql, func(s *sqlite.Stmt) error {
		ok = true
		r, err = scanUnknown(s)
		return err
	}, args...)
	return r, ok, err
}

func putUnknown(c *sqlite.Conn, r record) error {
	text, err := encodeExtra(r.cols)
	if err != nil {
		return err
	}
	return run(c, `INSERT INTO unknown_rows (tbl, key, shared, site, epoch, seq, at, clock, hash, deleted, columns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tbl, shared, key, site) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, at = excluded.at,
		clock = excluded.clock, hash = excluded.hash, deleted = excluded.deleted, columns = excluded.columns`,
		r.table, r.key, r.shared, r.Site, r.Epoch, r.Seq, r.at, r.clock, r.hash, r.deleted, text)
}

func deleteUnknown(c *sqlite.Conn, r record) error {
	return run(c, "DELETE FROM unknown_rows WHERE tbl = ? AND shared = ? AND key = ? AND site = ?", r.table, r.shared, r.key, r.Site)
}
