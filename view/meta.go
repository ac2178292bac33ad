package view

import (
	"bytes"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// meta is what a file says of itself.
type meta struct {
	cluster string
	self    Stream
	clock   Clock
	boot    string
	touched time.Time
	fresh   bool // it was made just now
}

// readMeta reads it, and writes it into a new file.
func (v *View) readMeta(c *sqlite.Conn, after uint64) (meta, error) {
	now := v.config.Now()
	m := meta{fresh: true}
	err := query(c, "SELECT cluster, site, epoch, clock, boot, touched_at FROM meta", func(s *sqlite.Stmt) error {
		m = meta{
			cluster: s.ColumnText(0), self: Stream{bourse.WorkerID(s.ColumnText(1)), uint64(s.ColumnInt64(2))},
			clock: Clock(s.ColumnInt64(3)), boot: s.ColumnText(4), touched: timeOf(s.ColumnInt64(5)),
		}
		return nil
	})
	switch {
	case err != nil:
		return m, fmt.Errorf("read what the file is: %w", err)
	case m.fresh:
		m.cluster, m.self, m.boot, m.touched = v.config.Cluster, Stream{v.config.Site, max(uint64(max(now.UnixMilli(), 1)), after+1)}, bootID(), now
		return m, run(c, "INSERT INTO meta (one, cluster, site, epoch, clock, boot, touched_at) VALUES (1, ?, ?, ?, 0, ?, ?)",
			m.cluster, m.self.Site, m.self.Epoch, m.boot, now.UnixNano())
	case m.cluster != v.config.Cluster:
		return m, &unusable{fmt.Errorf("it is of cluster %s", bourse.Quoted(m.cluster))}
	case m.self.Site != v.config.Site:
		return m, &unusable{fmt.Errorf("it is of site %s", bourse.Quoted(string(m.self.Site)))}
	case checkEpoch(m.self, now) != nil: // by a clock that was wrong: the others have refused what it wrote
		return m, &unusable{fmt.Errorf("its epoch is ahead of the clock")}
	case now.Sub(m.touched) > tooOld:
		return m, &unusable{fmt.Errorf("it was last used at %s", m.touched.Format(time.RFC3339))}
	}
	return m, nil
}

// settle brings an opened file up to the present: nobody is known to be alive,
// rows of a newer release are put where they belong now, and after a crash of
// the host our own rows are begun anew.
func (v *View) settle(c *sqlite.Conn, st *state, m meta, from int) error {
	boot := bootID()
	b := newBatch(c, v.tables, st, v.config.Now(), &v.writer.hasher, &v.notary)
	err := inTransaction(c, func() error {
		if err := run(c, "UPDATE sites SET alive = NULL"); err != nil {
			return err
		}
		if err := run(c, "UPDATE meta SET touched_at = ?, boot = ?", b.now.UnixNano(), boot); err != nil {
			return err
		}
		if from > 0 && from < len(v.writer.history) {
			if err := b.adopt(); err != nil {
				return fmt.Errorf("put rows of a newer release in their place: %w", err)
			}
		}
		if from > 0 && from < signedSince(v.writer.history) {
			if err := b.adoptUnsigned(); err != nil {
				return fmt.Errorf("sign what was not signed: %w", err)
			}
		}
		// The last commits may have been lost with the host's memory, and
		// others may have them: what we write now must not look like them. Nor
		// is it theirs if it is not signed with the same key.
		own, began := st.heads[m.self]
		if !m.fresh && boot != m.boot || began && !bytes.Equal(own.by.birth, b.pen.birth) {
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

// inTransaction commits what f does, or none of it.
func inTransaction(c *sqlite.Conn, f func() error) error {
	if err := run(c, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f()
	if err == nil {
		err = run(c, "COMMIT")
	}
	if err != nil && !c.AutocommitEnabled() {
		_ = run(c, "ROLLBACK") // the cause is told
	}
	return err
}
