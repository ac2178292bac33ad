package view

import (
	"log/slog"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Removing a server has the same effect as if the server had begun a new, empty epoch: the rows
// that it owned are deleted, and members that still have these rows cannot restore them. The
// server's shared rows remain. If the server returns, it begins a later epoch and publishes all of
// its rows again.

// removeMember applies the removal of a server, after its row was stored.
func (b *batch) removeMember(site bourse.WorkerID, said wire.Columns) error {
	until := epochOf(said)
	switch {
	case b.newestOf(site) > until:
		return nil // the server has returned since it was removed
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

// epochOf returns the last epoch that a removal covers, clamped to the range of valid epochs.
func epochOf(said wire.Columns) uint64 {
	n, _ := said.Get("until").(int64)
	return uint64(min(max(n, 0), wire.MaxEpoch-1))
}

// LatestEpoch returns a site's newest epoch in the view, in milliseconds since 1970, or 0 if there
// is none. For a removed site, the result is greater than every epoch that the removal covers.
func (v *View) LatestEpoch(site bourse.WorkerID) uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.newest[site]
}

// readRemoved reads the removals. A removal covers all of a server's epochs up to a limit. If it
// covers the server's newest epoch, readRemoved sets the newest epoch to the one after this limit.
func (st *state) readRemoved(c *sqlite.Conn) error {
	return schema.Query(c, "SELECT key, until FROM removed_rows", func(s *sqlite.Stmt) error {
		site, until := bourse.WorkerID(s.ColumnText(0)), uint64(min(max(s.ColumnInt64(1), 0), wire.MaxEpoch-1))
		if st.newest[site] <= until {
			st.newest[site] = until + 1
		}
		return nil
	})
}

// logRemoved warns that this server is running although an operator has removed it.
func (v *View) logRemoved() {
	if v.config.Role != bourse.RoleWorker {
		v.config.Log.Warn("this server had been removed from the cluster and has returned")
		return
	}
	v.config.Log.Warn("this worker had been removed from the cluster and has returned; its machines and volumes are listed again, and their names may be ambiguous",
		slog.String("hint", "bourse machine list --worker "+string(v.config.Site)))
}
