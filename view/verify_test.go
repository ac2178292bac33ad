package view

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"
)

// allRecords calls each with every record of the file.
func allRecords(c *sqlite.Conn, all tables, each func(record) error) error {
	for _, t := range all.sorted() {
		if err := records(c, t.all, t.scan, each); err != nil {
			return err
		}
	}
	if err := records(c, selectTombstones, tombstoneAt, each); err != nil {
		return err
	}
	return records(c, selectUnknown, scanUnknown, each)
}

// verify compares the file with itself: SQLite's own checks, the hash of each
// row with what it says, and the checksums with the rows. It reads everything.
func (v *View) verify(ctx context.Context) error {
	return v.read(ctx, func(c *sqlite.Conn) error {
		err := query(c, "PRAGMA integrity_check", func(s *sqlite.Stmt) error {
			if word := s.ColumnText(0); word != "ok" {
				return fmt.Errorf("integrity check: %s", word)
			}
			return nil
		})
		if err != nil {
			return err
		}
		got, err := readState(c, Stream{}, 0)
		if err != nil {
			return err
		}
		var h hasher
		sums, streams := map[sumKey]sum{}, map[Stream]uint64{}
		shares := map[Stream]head{}
		err = allRecords(c, v.tables, func(r record) error {
			if hash := h.of(r); hash != r.hash {
				return fmt.Errorf("row %s of %s has hash %x, says %x", r.key, r.table, r.hash, hash)
			}
			k := sumKey{r.table, r.shared}
			s := sums[k]
			s.hash ^= r.hash
			if !r.deleted {
				s.rows++
			}
			sums[k] = s
			if !r.shared {
				streams[r.Stream] ^= r.hash
				h := shares[r.Stream]
				h.rows, h.bytes = h.rows+1, h.bytes+r.size()
				shares[r.Stream] = h
				return nil
			}
			_, _, ok, err := proofOf(c, r.table, r.key)
			if err == nil && !ok {
				err = fmt.Errorf("shared row %s of %s has no proof", r.key, r.table)
			}
			return err
		})
		if err != nil {
			return err
		}
		for of, h := range got.heads {
			if s := shares[of]; s.rows != h.rows || s.bytes != h.bytes {
				return fmt.Errorf("stream %v: the file says %d rows with %d bytes, there are %d with %d", of, h.rows, h.bytes, s.rows, s.bytes)
			}
		}
		return compareSums(got, sums, streams)
	})
}

// compareSums compares what the file says of its rows with what they are.
func compareSums(got *state, sums map[sumKey]sum, streams map[Stream]uint64) error {
	for k, s := range got.sums {
		if sums[k] != s {
			return fmt.Errorf("table %s: the file says %+v, the rows %+v", k.table, s, sums[k])
		}
	}
	for k, s := range sums {
		if got.sums[k] != s {
			return fmt.Errorf("table %s: the file says %+v, the rows %+v", k.table, got.sums[k], s)
		}
	}
	for of, h := range got.heads {
		if streams[of] != h.hash {
			return fmt.Errorf("stream %v: the file says %x, the rows %x", of, h.hash, streams[of])
		}
	}
	for of, hash := range streams {
		if got.heads[of].hash != hash {
			return fmt.Errorf("stream %v: the file says %x, the rows %x", of, got.heads[of].hash, hash)
		}
	}
	return nil
}
