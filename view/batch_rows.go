package view

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// replace stores version r in place of old, or inserts it if old is nil. It executes the SQL
// statements before it changes the sums, so that a failed statement leaves the sums unchanged.
func (b *batch) replace(old *wire.Version, r wire.Version) error {
	r.Hash = b.hasher.Of(r)
	r.Placed = b.placed(&r)
	if err := b.tables.Store(b.conn, old, r); err != nil {
		return err
	}
	if old != nil {
		b.addToSums(*old, -1)
	}
	b.addToSums(r, 1)
	b.markChanged(r.Table)
	if r.Table == wire.TableRemoved && r.Shared && !r.Deleted {
		return b.removeMember(bourse.WorkerID(r.Key), r.Columns)
	}
	return nil
}

// remove deletes a row without a tombstone.
func (b *batch) remove(old wire.Version) error {
	if err := b.tables.Remove(b.conn, old); err != nil {
		return err
	}
	b.addToSums(old, -1)
	b.markChanged(old.Table)
	return nil
}

// addToSums updates the sums of the row's table and of its stream's head. It adds the row if n is 1,
// and removes it if n is -1. In both cases, it XORs the row's hash into the checksums.
func (b *batch) addToSums(r wire.Version, n int64) {
	k := sumKey{r.Table, r.Shared}
	s := b.tableSum(k)
	s.hash ^= r.Hash
	if !r.Deleted {
		s.rows += n
	}
	b.sums[k] = s
	if !r.Shared {
		// Owned rows from earlier epochs have been deleted, so this row belongs to the newest epoch.
		of := wire.Stream{Site: r.Site, Epoch: b.newestOf(r.Site)}
		h := b.head(of)
		h.hash ^= r.Hash
		h.rows += n
		h.bytes += n * r.Size()
		b.heads[of] = h
	}
}

func (b *batch) markChanged(table string) {
	b.touched[table] = true
	if table == wire.TableMachines {
		b.touched[TableServices] = true // triggers maintain this table
	}
}
