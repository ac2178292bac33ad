package view

import (
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// head describes a stream up to the last transaction that this server has applied.
type head struct {
	seq   uint64
	hash  uint64 // hash of its owned rows
	at    int64
	by    *wire.Author // never nil in a stored stream
	rows  int64        // number of owned rows
	bytes int64        // approximate size of the owned rows
}

// sumKey identifies the checksum of a table, whose rows are either all shared or all owned.
type sumKey struct {
	table  string
	shared bool
}

// checksum contains the number of rows in a table, and their combined hash.
type checksum struct {
	rows int64 // number of rows, not counting tombstones
	hash uint64
}

// state is an in-memory copy of frequently used parts of the file. Only the writer changes it,
// after each commit and with the view's lock held.
type state struct {
	self       wire.Stream
	clock      wire.Clock
	heads      map[wire.Stream]head
	newest     map[bourse.WorkerID]uint64   // each site's newest epoch, to which its owned rows belong
	epochs     map[bourse.WorkerID][]uint64 // epochs of the stored streams, in ascending order; never changed in place
	sums       map[sumKey]checksum
	quarantine Quarantine
	signer     wire.Signer
}

// readState reads the state from the file. self and clock come from the file's meta row.
func readState(c *sqlite.Conn, self wire.Stream, clock wire.Clock) (*state, error) {
	st := &state{
		self: self, clock: clock,
		heads: map[wire.Stream]head{}, newest: map[bourse.WorkerID]uint64{}, epochs: map[bourse.WorkerID][]uint64{}, sums: map[sumKey]checksum{},
	}
	err := schema.Query(c, "SELECT site, epoch, seq, hash, at, rows, bytes, birth FROM streams ORDER BY site, epoch", func(s *sqlite.Stmt) error {
		of := wire.Stream{Site: bourse.WorkerID(s.ColumnText(0)), Epoch: uint64(s.ColumnInt64(1))}
		birth, _ := schema.ValueAt(s, 7).([]byte)
		st.heads[of] = head{
			seq: uint64(s.ColumnInt64(2)), hash: uint64(s.ColumnInt64(3)), at: s.ColumnInt64(4),
			rows: s.ColumnInt64(5), bytes: s.ColumnInt64(6), by: &wire.Author{Stream: of, Birth: birth},
		}
		st.newest[of.Site] = max(st.newest[of.Site], of.Epoch)
		st.epochs[of.Site] = append(st.epochs[of.Site], of.Epoch)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the streams: %w", err)
	}
	if err := st.readRemoved(c); err != nil {
		return nil, fmt.Errorf("read the removed servers: %w", err)
	}
	st.newest[self.Site] = self.Epoch
	err = schema.Query(c, "SELECT tbl, shared, rows, sum FROM sums", func(s *sqlite.Stmt) error {
		st.sums[sumKey{s.ColumnText(0), s.ColumnBool(1)}] = checksum{s.ColumnInt64(2), uint64(s.ColumnInt64(3))}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the checksums: %w", err)
	}
	st.quarantine, err = readQuarantine(c)
	return st, err
}

// sharedHash returns the combined checksum of all tables' shared rows.
func (st *state) sharedHash() uint64 {
	var h uint64
	for k, s := range st.sums {
		if k.shared {
			h ^= s.hash
		}
	}
	return h
}
