package schema

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/wire"
)

const selectTombstones = "SELECT site, key, epoch, seq, at, hash, tbl, clock FROM tombstones"

func scanTombstone(s *sqlite.Stmt) (wire.Version, error) {
	return wire.Version{
		Stamp: StampOf(s), Table: s.ColumnText(6), Key: s.ColumnText(1), Shared: true, Deleted: true,
		Clock: wire.Clock(s.ColumnInt64(7)), Hash: uint64(s.ColumnInt64(5)),
	}, nil
}

func findTombstone(c *sqlite.Conn, table, key string) (r wire.Version, ok bool, err error) {
	err = Query(c, selectTombstones+" WHERE tbl = ? AND key = ?", func(s *sqlite.Stmt) error {
		ok = true
		r, err = scanTombstone(s)
		return err
	}, table, key)
	return r, ok, err
}

func putTombstone(c *sqlite.Conn, r wire.Version) error {
	return Run(c, `INSERT INTO tombstones (tbl, key, site, epoch, seq, at, clock, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tbl, key) DO UPDATE SET site = excluded.site, epoch = excluded.epoch, seq = excluded.seq, at = excluded.at,
		clock = excluded.clock, hash = excluded.hash`, r.Table, r.Key, r.Site, r.Epoch, r.Seq, r.At, int64(r.Clock), r.Hash)
}

func deleteTombstone(c *sqlite.Conn, r wire.Version) error {
	return Run(c, "DELETE FROM tombstones WHERE tbl = ? AND key = ?", r.Table, r.Key)
}
