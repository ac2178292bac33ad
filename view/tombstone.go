package view

import "zombiezen.com/go/sqlite"

const selectTombstones = "SELECT site, key, epoch, seq, at, hash, tbl, clock FROM tombstones"

func scanTombstone(s *sqlite.Stmt) record {
	return record{
		stamp: stampOf(s), table: s.ColumnText(6), key: s.ColumnText(1), shared: true, deleted: true,
		clock: Clock(s.ColumnInt64(7)), hash: uint64(s.ColumnInt64(5)),
	}
}

func findTombstone(c *sqlite.Conn, table, key string) (r record, ok bool, err error) {
	err = query(c, selectTombstones+" WHERE tbl = ? AND key = ?", func(s *sqlite.Stmt) error {
		r, ok = scanTombstone(s), true
		return nil
	}, table, key)
	return r, ok, err
}

func putTombstone(c *sqlite.Conn, r record) error {
	return run(c, `INSERT INTO tombstones (tbl, key, site, epoch, seq, at, clock, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tbl, key) DO UPDATE SET site = excluded.site, epoch = excluded.epoch, seq = excluded.seq, at = excluded.at,
		clock = excluded.clock, hash = excluded.hash`, r.table, r.key, r.Site, r.Epoch, r.Seq, r.at, r.clock, r.hash)
}

func deleteTombstone(c *sqlite.Conn, r record) error {
	return run(c, "DELETE FROM tombstones WHERE tbl = ? AND key = ?", r.table, r.key)
}
