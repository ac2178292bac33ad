package view

import (
	"strings"

	"zombiezen.com/go/sqlite"
)

// Bounds of the quarantine. It is there to be looked at: it keeps the newest
// rows, and of each what fits.
const (
	maxQuarantine = 1000
	maxKeptRow    = 64 << 10
	maxReason     = 256
	healthNewest  = 20
)

// refusal says why a row was not taken in. It is kept as it stands on the wire.
func (e *entry) refusal(st stamp, reason error) refusal {
	r := refusal{stamp: st, table: e.table, key: e.key, reason: reason}
	w := wireRow{
		Table: e.table, Key: e.key, Columns: map[string]any{}, Deleted: e.deleted, Clock: uint64(e.clock), Seq: st.Seq, At: st.at,
	}
	w.Sig = e.proof.sig
	for _, c := range e.change {
		w.Columns[c.name] = c.value
	}
	if raw, err := wire.enc.Marshal(w); err == nil { // without it the row is only told of
		r.raw = raw
	}
	return r
}

// refuse puts a row into quarantine.
func (b *batch) refuse(r refusal) error {
	var raw, retry any
	if len(r.raw) <= maxKeptRow {
		raw = r.raw
	}
	if r.retry > 0 {
		retry = r.retry
	}
	b.refused = true
	return run(b.conn, `INSERT INTO quarantine (site, epoch, seq, tbl, key, reason, row, since, retry_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.Site, r.Epoch, r.Seq, shown(r.table, maxName), shown(r.key, MaxKey), shown(r.reason.Error(), maxReason), raw, b.now.UnixNano(), retry)
}

// shown cuts a text that anybody may have written to what can be stored.
func shown(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
}

// trimQuarantine lets the oldest go.
func trimQuarantine(c *sqlite.Conn) error {
	return run(c, "DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?", maxQuarantine)
}

// readQuarantine reads what Health tells of it.
func readQuarantine(c *sqlite.Conn) (Quarantine, error) {
	var q Quarantine
	err := query(c, "SELECT count(*) FROM quarantine", func(s *sqlite.Stmt) error {
		q.Count = s.ColumnInt(0)
		return nil
	})
	if err != nil {
		return q, err
	}
	err = query(c, "SELECT site, tbl, epoch, seq, since, key, reason FROM quarantine ORDER BY id DESC LIMIT ?", func(s *sqlite.Stmt) error {
		st := stampOf(s)
		q.Newest = append(q.Newest, Quarantined{
			Origin: st.Position, Table: s.ColumnText(1), Key: s.ColumnText(5), Reason: s.ColumnText(6), Since: timeOf(st.at),
		})
		return nil
	}, healthNewest)
	return q, err
}

// quarantined is a row whose time has come.
type quarantined struct {
	id  int64
	st  stamp
	raw []byte
}

// release takes in the rows whose time has come, some at a time.
func (b *batch) release() error {
	const most = 256
	var due []quarantined
	err := query(b.conn, "SELECT site, id, epoch, seq, since, row FROM quarantine WHERE retry_at <= ? ORDER BY id LIMIT ?", func(s *sqlite.Stmt) error {
		raw, _ := valueAt(s, 5).([]byte)
		due = append(due, quarantined{s.ColumnInt64(1), stampOf(s), raw})
		return nil
	}, b.now.UnixNano(), most)
	if err != nil {
		return err
	}
	for _, q := range due {
		b.refused = true
		if err := run(b.conn, "DELETE FROM quarantine WHERE id = ?", q.id); err != nil {
			return err
		}
		w, err := decodeRow(q.raw)
		if err != nil {
			continue // it was too large to be kept; comparing shared rows brings it
		}
		e, err := b.tables.check(q.st.Site, w.row())
		if err != nil || !e.shared {
			continue
		}
		by := b.head(q.st.Stream).by
		if by == nil {
			continue // comparing shared rows brings it
		}
		e.proof = proof{by: by, sig: w.Sig}
		q.st.at = w.At
		if err := b.takeOne(q.st, &e); err != nil {
			return err
		}
	}
	return nil
}
