package view

import (
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// retention is how long deletions of shared rows and cancelled orders are
// kept. A file that missed more than that is thrown away at Open.
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
	case in.Seq > h.seq+1 || h.by != nil && !h.by.same(in.by): // of two births the first one that came stands
		b.gaps[in.Stream] = true
		return nil
	}
	st := stamp{in.Position, in.at}
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

// skip takes in a transaction without its rows: they brought down whoever
// tried to apply it.
func (b *batch) skip(in *incoming, reason error) error {
	st := stamp{in.Position, in.at}
	if in.Seq != b.head(in.Stream).seq+1 || b.ours(in.Stream) {
		return nil
	}
	if err := b.advance(st, in.by); err != nil {
		return err
	}
	b.recent = append(b.recent, recent{in.Position, in.encoded})
	return b.refuse(refusal{stamp: st, reason: fmt.Errorf("the whole transaction: %w", reason)})
}

// ours tells whether a stream is the one that we write. Earlier lives of ours
// are as good as another site's.
func (b *batch) ours(s Stream) bool { return s.Site == b.self.Site && s.Epoch >= b.self.Epoch }

// advance moves a stream's head. The first transaction of a site's new life
// ends the rows of the lives before it.
func (b *batch) advance(st stamp, by *author) error {
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
	h.seq, h.at = st.Seq, st.at
	b.heads[st.Stream] = h
	return nil
}

// disown deletes all owned rows of a site.
func (b *batch) disown(site bourse.WorkerID) error {
	for name, t := range b.tables {
		if !t.shared {
			if err := b.removeAll(t.all+" WHERE site = ?", t.scan, site); err != nil {
				return fmt.Errorf("forget the rows of %s in %s: %w", site, name, err)
			}
		}
	}
	return b.removeAll(selectUnknown+" WHERE site = ? AND shared = 0", scanUnknown, site)
}

// removeAll deletes what a SELECT gives, a part at a time.
func (b *batch) removeAll(sql string, scan func(*sqlite.Stmt) (record, error), args ...any) error {
	const part = 512
	for {
		var found []record
		err := query(b.conn, fmt.Sprintf("%s LIMIT %d", sql, part), func(s *sqlite.Stmt) error {
			r, err := scan(s)
			found = append(found, r)
			return err
		}, args...)
		if err != nil || len(found) == 0 {
			return err
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
func (b *batch) takeOne(st stamp, e *entry) error {
	if !b.careful {
		return b.take(st, e)
	}
	if err := run(b.conn, "SAVEPOINT one_row"); err != nil {
		return err
	}
	cause := recovered(func() error { return b.take(st, e) })
	if cause != nil && fateOf(cause) != fateBadRow {
		return cause
	}
	if cause != nil {
		if err := run(b.conn, "ROLLBACK TO one_row"); err != nil {
			return err
		}
	}
	if err := run(b.conn, "RELEASE one_row"); err != nil {
		return err
	}
	if cause != nil {
		return b.refuse(e.refusal(st, cause))
	}
	return nil
}

// take merges a row that fits the schema.
func (b *batch) take(st stamp, e *entry) error {
	if e.shared {
		return b.takeShared(st, e)
	}
	return b.takeOwned(st, e)
}

func (b *batch) takeOwned(st stamp, e *entry) error {
	if st.Epoch < b.newestOf(st.Site) {
		return nil // of an earlier life
	}
	old, ok, err := b.find(e.table, false, st.Site, e.key)
	switch {
	case err != nil:
		return err
	case e.deleted && ok:
		return b.remove(old)
	case e.deleted:
		return nil
	}
	r := record{stamp: st, table: e.table, key: e.key, cols: old.cols.with(e.change)}
	err = checkSize(r.cols)
	if err == nil {
		err = b.checkShare(r, old)
	}
	if err != nil {
		return b.refuse(e.refusal(st, err))
	}
	if !ok {
		return b.replace(nil, r)
	}
	return b.replace(&old, r)
}

func (b *batch) takeShared(st stamp, e *entry) error {
	if ahead := e.clock.Time().Sub(b.now); ahead > maxSkew {
		version := e.version(st)
		if !b.notary.vouches(&version) {
			b.forged++
			return nil
		}
		r := e.refusal(st, fmt.Errorf("its clock is %s ahead of ours", ahead.Round(time.Second)))
		r.retry = e.clock.Time().Add(-maxSkew).UnixNano()
		return b.refuse(r)
	}
	_, err := b.mergeIn(e.version(st))
	return err
}

// version is what a shared row of another site says.
func (e *entry) version(st stamp) record {
	return record{
		stamp: st, table: e.table, key: e.key, shared: true, deleted: e.deleted, clock: e.clock,
		cols: columns(nil).with(e.change), proof: e.proof,
	}
}

// mergeIn puts a version of a shared row in the place of the one that stands,
// if it is the greater one, and tells whether it was.
func (b *batch) mergeIn(r record) (bool, error) {
	r.hash = b.hasher.of(r)
	old, ok, err := b.find(r.table, true, r.Site, r.key)
	if err != nil || ok && order(old, r) >= 0 {
		return false, err
	}
	if !b.notary.vouches(&r) {
		b.forged++ // dropped without a trace: it may be about any site
		return false, nil
	}
	b.hear(r.clock)
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

// expired tells whether a version has served its time.
func (b *batch) expired(r record) bool {
	return (r.deleted || r.table == TableCancelled) && r.clock < clockAt(b.now.Add(-retention))
}
