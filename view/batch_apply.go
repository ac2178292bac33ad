package view

import (
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// retention is how long deletions of shared rows, cancelled orders and forgotten
// workers are kept. A file that missed more than that is thrown away at Open.
const retention = 7 * 24 * time.Hour

// apply takes in the next transaction of a stream. One that is known already is
// passed over, and so is one that something is missing before.
func (b *batch) apply(in *incoming) error {
	switch h := b.head(in.Stream); {
	case in.Seq < h.seq+1 || b.ours(in.Stream):
		return nil
	case b.outlived(in.Stream):
		b.gaps[in.Stream] = true
		return nil
	case in.Seq > h.seq+1 || h.by != nil && !h.by.Same(in.by): // of two births the first one that came counts
		b.gaps[in.Stream] = true
		return nil
	}
	st := wire.Stamp{Position: in.Position, At: in.at}
	if err := b.advance(st, in.by); err != nil {
		return err
	}
	for i := range in.rows {
		if err := b.takeOne(st, &in.rows[i]); err != nil {
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

// skip takes in a transaction without its rows: they brought down what
// tried to apply it.
func (b *batch) skip(in *incoming, reason error) error {
	st := wire.Stamp{Position: in.Position, At: in.at}
	if in.Seq != b.head(in.Stream).seq+1 || b.ours(in.Stream) {
		return nil
	}
	if err := b.advance(st, in.by); err != nil {
		return err
	}
	b.recent = append(b.recent, recent{in.Position, in.encoded})
	return b.refuse(refusal{Stamp: st, reason: fmt.Errorf("the whole transaction: %w", reason)})
}

// ours reports whether a stream is the one that we write. Earlier lives of ours
// are as good as another site's.
func (b *batch) ours(s wire.Stream) bool { return s.Site == b.self.Site && s.Epoch >= b.self.Epoch }

// advance moves a stream's head. The first transaction of a site's new life
// ends the rows of the lives before it.
func (b *batch) advance(st wire.Stamp, by *wire.Author) error {
	if st.Epoch > b.newestOf(st.Site) {
		if err := b.disown(st.Site); err != nil {
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

// disown deletes all owned rows of a site, a part at a time.
func (b *batch) disown(site bourse.WorkerID) error {
	const part = 512
	for {
		found, err := b.tables.Owned(b.conn, site, part)
		if err != nil {
			return fmt.Errorf("forget the rows of %s: %w", site, err)
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

// takeOne merges a row. In a careful batch a row that fails, even by a panic,
// is quarantined and the rest goes on.
func (b *batch) takeOne(st wire.Stamp, e *schema.Entry) error {
	if !b.careful {
		return b.take(st, e)
	}
	if err := schema.Run(b.conn, "SAVEPOINT one_row"); err != nil {
		return err
	}
	cause := recovered(func() error { return b.take(st, e) })
	if cause != nil && fateOf(cause) != fateBadRow {
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
		return nil // of an earlier life
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
		r := refusalOf(e, st, fmt.Errorf("its clock is %s ahead of ours", ahead.Round(time.Second)))
		r.retry = e.Clock.Time().Add(-maxSkew).UnixNano()
		return b.refuse(r)
	}
	_, err := b.mergeIn(e.Version(st))
	return err
}

// mergeIn puts a version of a shared row in the place of the one in the file,
// if it is the greater one, and reports whether it was.
func (b *batch) mergeIn(r wire.Version) (bool, error) {
	r.Hash = b.hasher.Of(r)
	old, ok, err := b.tables.Find(b.conn, r.Table, true, r.Site, r.Key)
	if err != nil || ok && wire.Order(old, r) >= 0 {
		return false, err
	}
	if !b.verifier.Valid(&r) {
		b.forged++ // dropped without a trace: it may be about any site
		return false, nil
	}
	b.observe(r.Clock)
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

// expired reports whether a version has served its time.
func (b *batch) expired(r wire.Version) bool {
	return schema.Expired(&r, wire.ClockAt(b.now.Add(-retention)))
}
