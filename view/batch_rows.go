package view

import "github.com/bourse-dev/bourse"

// find reads the version of a row that stands: of a shared one also a
// tombstone. site matters for owned rows only.
func (b *batch) find(name string, shared bool, site bourse.WorkerID, key string) (record, bool, error) {
	t := b.tables[name]
	if t == nil {
		return findUnknown(b.conn, name, shared, site, key)
	}
	r, ok, err := t.row(b.conn, site, key)
	if ok || err != nil || !shared {
		return r, ok, err
	}
	return findTombstone(b.conn, name, key)
}

// replace puts version r in the place of old, if there is one. The statements
// come first: when one fails, the sums are as they were.
func (b *batch) replace(old *record, r record) error {
	r.hash = b.hasher.of(r)
	if err := b.store(old, r); err != nil {
		return err
	}
	if r.shared && r.proof.by != nil {
		if err := putProof(b.conn, r); err != nil {
			return err
		}
	}
	if old != nil {
		b.account(*old, -1)
	}
	b.account(r, 1)
	b.touch(r.table)
	return nil
}

// remove deletes a row without a trace.
func (b *batch) remove(old record) error {
	if err := b.unstore(old); err != nil {
		return err
	}
	if old.shared {
		if err := deleteProof(b.conn, old); err != nil {
			return err
		}
	}
	b.account(old, -1)
	b.touch(old.table)
	return nil
}

func (b *batch) store(old *record, r record) error {
	t := b.tables[r.table]
	switch {
	case t == nil:
		if old != nil && old.Site != r.Site {
			if err := deleteUnknown(b.conn, *old); err != nil {
				return err
			}
		}
		return putUnknown(b.conn, r)
	case old != nil && old.deleted != r.deleted:
		if err := b.unstore(*old); err != nil {
			return err
		}
	}
	if r.deleted {
		return putTombstone(b.conn, r)
	}
	return t.store(b.conn, r)
}

func (b *batch) unstore(old record) error {
	t := b.tables[old.table]
	switch {
	case t == nil:
		return deleteUnknown(b.conn, old)
	case old.deleted:
		return deleteTombstone(b.conn, old)
	}
	return t.remove(b.conn, old.Site, old.key)
}

// account adds a row's hash to the sums, or takes it out: both are the
// exclusive or.
func (b *batch) account(r record, n int64) {
	k := sumKey{r.table, r.shared}
	s := b.sum(k)
	s.hash ^= r.hash
	if !r.deleted {
		s.rows += n
	}
	b.sums[k] = s
	if !r.shared {
		// Owned rows of older epochs do not stand: the site's newest has them all.
		of := Stream{r.Site, b.newestOf(r.Site)}
		h := b.head(of)
		h.hash ^= r.hash
		h.rows += n
		h.bytes += n * r.size()
		b.heads[of] = h
	}
}

func (b *batch) touch(table string) {
	b.touched[table] = true
	if table == TableMachines {
		b.touched[TableServices] = true // kept by triggers
	}
}
