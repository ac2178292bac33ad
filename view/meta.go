package view

import (
	"bytes"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// meta contains the file's metadata: the cluster and server that it belongs to, and when the server
// last used it.
type meta struct {
	cluster string
	self    wire.Stream
	clock   wire.Clock
	boot    string
	touched time.Time
	created bool // whether the file was just created
}

// readMeta reads the file's meta row, or writes it if the file is new.
func (w *writer) readMeta(c *sqlite.Conn, after uint64) (meta, error) {
	now := w.view.config.Now()
	m := meta{created: true}
	err := schema.Query(c, "SELECT cluster, site, epoch, clock, boot, touched_at FROM meta", func(s *sqlite.Stmt) error {
		m = meta{
			cluster: s.ColumnText(0), self: wire.Stream{Site: bourse.WorkerID(s.ColumnText(1)), Epoch: uint64(s.ColumnInt64(2))},
			clock: wire.Clock(s.ColumnInt64(3)), boot: s.ColumnText(4), touched: wire.TimeOf(s.ColumnInt64(5)),
		}
		return nil
	})
	switch {
	case err != nil:
		return m, fmt.Errorf("read which server the file belongs to: %w", err)
	case m.created:
		m.cluster, m.self, m.boot, m.touched = w.view.config.Cluster, wire.Stream{Site: w.view.config.Site, Epoch: max(uint64(max(now.UnixMilli(), 1)), after+1)}, bootID(), now
		return m, schema.Run(c, "INSERT INTO meta (one, cluster, site, epoch, clock, boot, touched_at) VALUES (1, ?, ?, ?, 0, ?, ?)",
			m.cluster, m.self.Site, m.self.Epoch, m.boot, now.UnixNano())
	case m.cluster != w.view.config.Cluster:
		return m, &schema.UnusableError{Cause: fmt.Errorf("it belongs to cluster %s", bourse.Quoted(m.cluster))}
	case m.self.Site != w.view.config.Site:
		return m, &schema.UnusableError{Cause: fmt.Errorf("it belongs to site %s", bourse.Quoted(string(m.self.Site)))}
	case wire.CheckEpoch(m.self, now) != nil: // the host's clock was wrong, so other members have rejected the stream
		return m, &schema.UnusableError{Cause: fmt.Errorf("its epoch is later than the current time")}
	case now.Sub(m.touched) > maxFileAge:
		return m, &schema.UnusableError{Cause: fmt.Errorf("it was last used at %s", m.touched.Format(time.RFC3339))}
	}
	return m, nil
}

// settle updates a newly opened file. It marks all sites as unreachable, and starts a new epoch if the host has been
// restarted or the server's key has changed.
func (w *writer) settle(c *sqlite.Conn, st *state, m meta) error {
	boot := bootID()
	b := newBatch(c, w.view.tables, st, w.view.config.Now(), &w.hasher, &w.view.verifier)
	err := schema.InTransaction(c, func() error {
		if err := schema.Run(c, "UPDATE sites SET alive = NULL"); err != nil {
			return err
		}
		if err := schema.Run(c, "UPDATE meta SET touched_at = ?, boot = ?", b.now.UnixNano(), boot); err != nil {
			return err
		}
		// If the host crashed, the last commits may have been lost, although other members may have
		// received them. New transactions must not reuse the numbers of lost ones, and a stream
		// must not continue with another key. In both cases, begin a new epoch.
		own, began := st.heads[m.self]
		if !m.created && boot != m.boot || began && !bytes.Equal(own.by.Birth, b.signer.Birth) {
			if err := b.renew(m.self.Epoch); err != nil {
				return err
			}
		}
		return b.flush()
	})
	if err != nil {
		return err
	}
	b.committed()
	return nil
}
