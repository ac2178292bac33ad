package view

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// verify checks the consistency of the whole file: SQLite's own checks, each row's hash, and the
// checksums.
func (v *View) verify(ctx context.Context) error {
	return v.Read(ctx, func(c *sqlite.Conn) error {
		err := schema.Query(c, "PRAGMA integrity_check", func(s *sqlite.Stmt) error {
			if word := s.ColumnText(0); word != "ok" {
				return fmt.Errorf("integrity check: %s", word)
			}
			return nil
		})
		if err != nil {
			return err
		}
		got, err := readState(c, wire.Stream{}, 0)
		if err != nil {
			return err
		}
		var h wire.Hasher
		sums, streams := map[sumKey]checksum{}, map[wire.Stream]uint64{}
		shares := map[wire.Stream]head{}
		err = v.tables.Each(c, func(r wire.Version) error {
			if hash := h.Of(r); hash != r.Hash {
				return fmt.Errorf("row %s of %s has hash %x, want %x", r.Key, r.Table, r.Hash, hash)
			}
			k := sumKey{r.Table, r.Shared}
			s := sums[k]
			s.hash ^= r.Hash
			if !r.Deleted {
				s.rows++
			}
			sums[k] = s
			if !r.Shared {
				streams[r.Stream] ^= r.Hash
				h := shares[r.Stream]
				h.rows, h.bytes = h.rows+1, h.bytes+r.Size()
				shares[r.Stream] = h
				return nil
			}
			_, _, ok, err := schema.ProofOf(c, r.Table, r.Key)
			if err == nil && !ok {
				err = fmt.Errorf("shared row %s of %s has no proof", r.Key, r.Table)
			}
			return err
		})
		if err != nil {
			return err
		}
		for of, h := range got.heads {
			if s := shares[of]; s.rows != h.rows || s.bytes != h.bytes {
				return fmt.Errorf("stream %v: the file records %d rows with %d bytes, but there are %d with %d", of, h.rows, h.bytes, s.rows, s.bytes)
			}
		}
		return compareSums(got, sums, streams)
	})
}

// compareSums compares the recorded sums with the rows.
func compareSums(got *state, sums map[sumKey]checksum, streams map[wire.Stream]uint64) error {
	for k, s := range got.sums {
		if sums[k] != s {
			return fmt.Errorf("table %s: the file records %+v, the rows have %+v", k.table, s, sums[k])
		}
	}
	for k, s := range sums {
		if got.sums[k] != s {
			return fmt.Errorf("table %s: the file records %+v, the rows have %+v", k.table, got.sums[k], s)
		}
	}
	for of, h := range got.heads {
		if streams[of] != h.hash {
			return fmt.Errorf("stream %v: the file records %x, the rows have %x", of, h.hash, streams[of])
		}
	}
	for of, hash := range streams {
		if got.heads[of].hash != hash {
			return fmt.Errorf("stream %v: the file records %x, the rows have %x", of, got.heads[of].hash, hash)
		}
	}
	return nil
}
