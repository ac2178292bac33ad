package view

import (
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// retention is how long expired data is retained, such as the tombstones of deleted shared rows and
// the records of canceled orders. Open replaces a file that has gone unused for almost that long.
const retention = 7 * 24 * time.Hour

// apply applies a transaction if it is the next one of its stream. It ignores transactions that
// have already been applied or that follow a gap.
func (b *batch) apply(in *incoming) error {
	switch h := b.head(in.Stream); {
	case in.Seq < h.seq+1 || b.isOwn(in.Stream):
		return nil
	case b.superseded(in.Stream):
		b.gaps[in.Stream] = true
		return nil
	case in.Seq > h.seq+1 || h.by != nil && !h.by.Same(in.by): // the first birth certificate to arrive is the valid one
		b.gaps[in.Stream] = true
		return nil
	}
	st := wire.Stamp{Position: in.Position, At: in.at}
	if err := b.advance(st, in.by); err != nil {
		return err
	}
	for i := range in.rows {
		if err := b.applyRow(st, &in.rows[i]); err != nil {
			return err
		}
	}
	for _, r := range in.bad {
		if err := b.refuse(r); err != nil {
			return err
		}
	}
	b.recent = append(b.recent, recent{in.Position, in.encoded})
	return nil
}

// skip advances a stream past a transaction whose rows could not be applied, for example because they caused
// a panic. It quarantines the transaction's position.
func (b *batch) skip(in *incoming, reason error) error {
	st := wire.Stamp{Position: in.Position, At: in.at}
	if in.Seq != b.head(in.Stream).seq+1 || b.isOwn(in.Stream) {
		return nil
	}
	if err := b.advance(st, in.by); err != nil {
		return err
	}
	b.recent = append(b.recent, recent{in.Position, in.encoded})
	return b.refuse(refusal{Stamp: st, reason: fmt.Errorf("whole transaction: %w", reason)})
}

// isOwn reports whether s is this server's own current stream. It returns false for the server's
// streams of earlier epochs, which are treated like other sites' streams.
func (b *batch) isOwn(s wire.Stream) bool { return s.Site == b.self.Site && s.Epoch >= b.self.Epoch }

// advance moves a stream's head to the given transaction. The first transaction of a new epoch deletes the site's owned
// rows from earlier epochs.
func (b *batch) advance(st wire.Stamp, by *wire.Author) error {
	if st.Epoch > b.newestOf(st.Site) {
		if err := b.deleteOwned(st.Site); err != nil {
			return err
		}
		b.newest[st.Site] = st.Epoch
	}
	h := b.head(st.Stream)
	if h.by == nil {
		if err := b.makeRoom(st.Stream); err != nil {
			return err
		}
		h.by = by
	}
	h.seq, h.at = st.Seq, st.At
	b.heads[st.Stream] = h
	return nil
}

// deleteOwned deletes all owned rows of a site. It reads and deletes them in chunks.
func (b *batch) deleteOwned(site bourse.WorkerID) error {
	const part = 512
	for {
		found, err := b.tables.Owned(b.conn, site, part)
		if err != nil {
			return fmt.Errorf("delete the rows of %s: %w", site, err)
		}
		if len(found) == 0 {
			return nil
		}
		for _, r := range found {
			if err := b.remove(r); err != nil {
				return err
			}
		}
	}
}

// applyRow merges one row. If perRow is set, a row that causes an error or a panic is quarantined, and the batch
// continues.
func (b *batch) applyRow(st wire.Stamp, e *schema.Entry) error {
	if !b.perRow {
		return b.take(st, e)
	}
	if err := schema.Run(b.conn, "SAVEPOINT one_row"); err != nil {
		return err
	}
	cause := recovered(func() error { return b.take(st, e) })
	if cause != nil && failureOf(cause) != failBadRow {
		return cause
	}
	if cause != nil {
		if err := schema.Run(b.conn, "ROLLBACK TO one_row"); err != nil {
			return err
		}
	}
	if err := schema.Run(b.conn, "RELEASE one_row"); err != nil {
		return err
	}
	if cause != nil {
		return b.refuse(refusalOf(e, st, cause))
	}
	return nil
}

// take merges a row that fits the schema.
func (b *batch) take(st wire.Stamp, e *schema.Entry) error {
	if e.Shared {
		return b.takeShared(st, e)
	}
	return b.takeOwned(st, e)
}

func (b *batch) takeOwned(st wire.Stamp, e *schema.Entry) error {
	if st.Epoch < b.newestOf(st.Site) {
		return nil // the row is from an earlier epoch
	}
	old, ok, err := b.tables.Find(b.conn, e.Table, false, st.Site, e.Key)
	switch {
	case err != nil:
		return err
	case e.Deleted && ok:
		return b.remove(old)
	case e.Deleted:
		return nil
	}
	r := wire.Version{Stamp: st, Table: e.Table, Key: e.Key, Columns: old.Columns.With(e.Change)}
	err = schema.CheckSize(r.Columns)
	if err == nil {
		err = b.checkShare(r, old)
	}
	if err != nil {
		return b.refuse(refusalOf(e, st, err))
	}
	if !ok {
		return b.replace(nil, r)
	}
	return b.replace(&old, r)
}

func (b *batch) takeShared(st wire.Stamp, e *schema.Entry) error {
	if ahead := e.Clock.Time().Sub(b.now); ahead > maxSkew {
		version := e.Version(st)
		if !b.verifier.Valid(&version) {
			b.forged++
			return nil
		}
		r := refusalOf(e, st, fmt.Errorf("its clock is %s ahead of this server's", ahead.Round(time.Second)))
		r.retry = e.Clock.Time().Add(-maxSkew).UnixNano()
		return b.refuse(r)
	}
	_, err := b.mergeShared(e.Version(st))
	return err
}

// mergeShared merges a version of a shared row. It stores the version if it is greater than the
// stored one, and reports whether the row has changed.
func (b *batch) mergeShared(r wire.Version) (bool, error) {
	r.Hash = b.hasher.Of(r)
	old, ok, err := b.tables.Find(b.conn, r.Table, true, r.Site, r.Key)
	if err != nil || ok && wire.Order(old, r) >= 0 {
		return false, err
	}
	if !b.verifier.Valid(&r) {
		b.forged++ // not quarantined, because a forged row could name any site
		return false, nil
	}
	b.advanceClock(r.Clock)
	switch {
	case !ok && b.expired(r):
		return false, nil
	case b.expired(r):
		return true, b.remove(old)
	case !ok:
		return true, b.replace(nil, r)
	}
	return true, b.replace(&old, r)
}

// expired reports whether a version's retention period has ended.
func (b *batch) expired(r wire.Version) bool {
	return schema.Expired(&r, wire.ClockAt(b.now.Add(-retention)))
}
