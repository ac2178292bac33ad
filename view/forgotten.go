package view

import (
	"log/slog"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Removing a worker has the same effect as if the worker had begun a new epoch without writing anything: its earlier
// rows are deleted, and members that still have them cannot restore them. If the worker returns, it begins a later
// epoch and publishes all of its rows again.

// removeWorker applies a row of the table of removed workers.
func (b *batch) removeWorker(site bourse.WorkerID, said wire.Columns) error {
	until := epochOf(said)
	switch {
	case b.newestOf(site) > until:
		return nil // the worker has returned since
	case site == b.self.Site:
		b.wasRemoved = true
		return b.renew(until)
	}
	if err := b.deleteOwned(site); err != nil {
		return err
	}
	b.newest[site] = until + 1
	return nil
}

// epochOf returns the row's until column, limited to valid epochs.
func epochOf(said wire.Columns) uint64 {
	n, _ := said.Get("until").(int64)
	return uint64(min(max(n, 0), wire.MaxEpoch-1))
}

// readRemoved raises each removed worker's newest epoch to one after its removal.
func (st *state) readRemoved(c *sqlite.Conn) error {
	return schema.Query(c, "SELECT key, until FROM forgotten_rows", func(s *sqlite.Stmt) error {
		site, until := bourse.WorkerID(s.ColumnText(0)), uint64(min(max(s.ColumnInt64(1), 0), wire.MaxEpoch-1))
		if st.newest[site] <= until {
			st.newest[site] = until + 1
		}
		return nil
	})
}

// logRemoved warns that this worker had been removed but is running.
func (v *View) logRemoved() {
	v.config.Log.Warn("this worker had been removed while it was unreachable; its machines and volumes are listed again, and their names may be ambiguous",
		slog.String("hint", "bourse machine list --worker "+string(v.config.Site)))
}
