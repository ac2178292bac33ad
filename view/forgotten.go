package view

import (
	"log/slog"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// A worker is forgotten as if it had begun another epoch, and written nothing in
// it: what it wrote before goes, and does not come back from those who have it still. If
// the worker comes back after all, it begins an epoch after that one, with all
// that it has.

// forgetWorker does what a row of forgotten workers says.
func (b *batch) forgetWorker(site bourse.WorkerID, said wire.Columns) error {
	until := epochOf(said)
	switch {
	case b.newestOf(site) > until:
		return nil // it has come back
	case site == b.self.Site:
		b.wasForgotten = true
		return b.renew(until)
	}
	if err := b.disown(site); err != nil {
		return err
	}
	b.newest[site] = until + 1
	return nil
}

// epochOf returns until, as far as it can be an epoch.
func epochOf(said wire.Columns) uint64 {
	n, _ := said.Get("until").(int64)
	return uint64(min(max(n, 0), wire.MaxEpoch-1))
}

// readForgotten adds to the newest epochs those of forgotten workers.
func (st *state) readForgotten(c *sqlite.Conn) error {
	return schema.Query(c, "SELECT key, until FROM forgotten_rows", func(s *sqlite.Stmt) error {
		site, until := bourse.WorkerID(s.ColumnText(0)), uint64(min(max(s.ColumnInt64(1), 0), wire.MaxEpoch-1))
		if st.newest[site] <= until {
			st.newest[site] = until + 1
		}
		return nil
	})
}

// logForgotten says that this server was forgotten, and is there.
func (v *View) logForgotten() {
	v.config.Log.Warn("this worker was forgotten while it was away: it joins again with its machines and volumes; names that were taken since are ambiguous",
		slog.String("hint", "bourse machine list --worker "+string(v.config.Site)))
}
