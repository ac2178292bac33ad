package view

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// replace puts version r in the place of old, if there is one. The statements
// come first: when one fails, the sums are as they were.
func (b *batch) replace(old *wire.Version, r wire.Version) error {
	r.Hash = b.hasher.Of(r)
	r.Placed = b.placed(&r)
	if err := b.tables.Store(b.conn, old, r); err != nil {
		return err
	}
	if old != nil {
		b.account(*old, -1)
	}
	b.account(r, 1)
	b.touch(r.Table)
	if r.Table == wire.TableForgotten && r.Shared && !r.Deleted {
		return b.forgetWorker(bourse.WorkerID(r.Key), r.Columns)
	}
	return nil
}

// remove deletes a row without a trace.
func (b *batch) remove(old wire.Version) error {
	if err := b.tables.Remove(b.conn, old); err != nil {
		return err
	}
	b.account(old, -1)
	b.touch(old.Table)
	return nil
}

// account adds a row's hash to the sums, or takes it out: both are the
// exclusive or.
func (b *batch) account(r wire.Version, n int64) {
	k := sumKey{r.Table, r.Shared}
	s := b.sum(k)
	s.hash ^= r.Hash
	if !r.Deleted {
		s.rows += n
	}
	b.sums[k] = s
	if !r.Shared {
		// No owned rows of older epochs are left: the site's newest has them all.
		of := wire.Stream{Site: r.Site, Epoch: b.newestOf(r.Site)}
		h := b.head(of)
		h.hash ^= r.Hash
		h.rows += n
		h.bytes += n * r.Size()
		b.heads[of] = h
	}
}

func (b *batch) touch(table string) {
	b.touched[table] = true
	if table == wire.TableMachines {
		b.touched[TableServices] = true // kept by triggers
	}
}
