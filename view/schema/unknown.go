package schema

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/view/wire"
)

const selectUnknown = "SELECT site, key, epoch, seq, at, hash, tbl, shared, clock, deleted, columns FROM unknown_rows"

func scanUnknown(s *sqlite.Stmt) (wire.Version, error) {
	r := wire.Version{
		Stamp: StampOf(s), Table: s.ColumnText(6), Key: s.ColumnText(1), Shared: s.ColumnBool(7), Deleted: s.ColumnBool(9),
		Clock: wire.Clock(s.ColumnInt64(8)), Hash: uint64(s.ColumnInt64(5)),
	}
	var err error
	if r.Columns, err = decodeExtra(s.ColumnText(10)); err != nil {
		return r, fmt.Errorf("columns of row %s in %s: %w", bourse.Quoted(r.Key), r.Table, err)
	}
	return r, nil
}

// findUnknown reads a row of a table that only a newer release knows.
func findUnknown(c *sqlite.Conn, table string, shared bool, site bourse.WorkerID, key string) (r wire.Version, ok bool, err error) {
	sql, args := selectUnknown+" WHERE tbl = ? AND shared = 1 AND key = ?", []any{table, key}
	if !shared {
		sql, args = selectUnknown+" WHERE tbl = ? AND shared = 0 AND key = ? AND site = ?", []any{table, key, site}
	}
	err = Query(c, sql, func(s *sqlite.Stmt) error {
		ok = true
		r, err = scanUnknown(s)
		return err
	}, args...)
	return r, ok, err
}

func putUnknown(c *sqlite.Conn, r wire.Version) error {
	text, err := encodeExtra(r.Columns)
	if err != nil {
		return err
	}
	return Run(c, `INSERT INTO unknown_rows (tbl, key, shared, site, epoch, seq, at, clock, hash, deleted, columns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tbl, shared, key, site) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq, at = excluded.at,
		clock = excluded.clock, hash = excluded.hash, deleted = excluded.deleted, columns = excluded.columns`,
		r.Table, r.Key, r.Shared, r.Site, r.Epoch, r.Seq, r.At, int64(r.Clock), r.Hash, r.Deleted, text)
}

func deleteUnknown(c *sqlite.Conn, r wire.Version) error {
	return Run(c, "DELETE FROM unknown_rows WHERE tbl = ? AND shared = ? AND key = ? AND site = ?", r.Table, r.Shared, r.Key, r.Site)
}
