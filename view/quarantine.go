package view

import (
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// Limits on the quarantine: the number of rows, the sizes of a row and of a reason in bytes, and the number of rows in
// Health.
const (
	maxQuarantine     = 1000
	maxQuarantinedRow = 64 << 10
	maxReason         = 256
	healthNewest      = 20
)

// refusalOf describes a rejected row for the quarantine. The description includes the row in its
// wire encoding.
func refusalOf(e *schema.Entry, st wire.Stamp, reason error) refusal {
	r := refusal{Stamp: st, table: e.Table, key: e.Key, reason: reason}
	w := wire.RowBody{
		Table: e.Table, Key: e.Key, Columns: map[string]any{}, Deleted: e.Deleted, Clock: uint64(e.Clock), Seq: st.Seq, At: st.At,
	}
	w.Sig = e.Proof.Sig
	for _, c := range e.Change {
		w.Columns[c.Name] = c.Value
	}
	if raw, err := wire.EncodeBody(w); err == nil { // if encoding fails, only the table and key are recorded
		r.raw = raw
	}
	return r
}

// refuse quarantines a rejected row.
func (b *batch) refuse(r refusal) error {
	var raw, retry any
	if len(r.raw) <= maxQuarantinedRow {
		raw = r.raw
	}
	if r.retry > 0 {
		retry = r.retry
	}
	b.refused = true
	if b.refusals++; b.refusals%maxQuarantine == 0 { // limit the table's size even within a single transaction
		if err := trimQuarantine(b.conn); err != nil {
			return err
		}
	}
	return schema.Run(b.conn, `INSERT INTO quarantine (site, epoch, seq, tbl, key, reason, row, since, retry_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.Site, r.Epoch, r.Seq, sanitized(r.table, wire.MaxName), sanitized(r.key, wire.MaxKey), sanitized(r.reason.Error(), maxReason), raw, b.now.UnixNano(), retry)
}

// sanitized returns untrusted text in a form that can be stored: truncated, and without invalid
// UTF-8 or zero bytes.
func sanitized(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
}

// trimQuarantine deletes the oldest rows from the quarantine until at most maxQuarantine remain.
func trimQuarantine(c *sqlite.Conn) error {
	return schema.Run(c, "DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?", maxQuarantine)
}

// readQuarantine returns the description of the quarantine for Health.
func readQuarantine(c *sqlite.Conn) (Quarantine, error) {
	var q Quarantine
	err := schema.Query(c, "SELECT count(*) FROM quarantine", func(s *sqlite.Stmt) error {
		q.Count = s.ColumnInt(0)
		return nil
	})
	if err != nil {
		return q, err
	}
	err = schema.Query(c, "SELECT site, tbl, epoch, seq, since, key, reason FROM quarantine ORDER BY id DESC LIMIT ?", func(s *sqlite.Stmt) error {
		st := schema.StampOf(s)
		q.Newest = append(q.Newest, Quarantined{
			Origin: st.Position, Table: s.ColumnText(1), Key: s.ColumnText(5), Reason: s.ColumnText(6), Since: wire.TimeOf(st.At),
		})
		return nil
	}, healthNewest)
	return q, err
}

// quarantined is a quarantined row that is retried.
type quarantined struct {
	id  int64
	st  wire.Stamp
	raw []byte
}

// retryQuarantined retries the quarantined rows that are due, up to a limit. The next call retries the others.
func (b *batch) retryQuarantined() error {
	const limit = 256
	var due []quarantined
	err := schema.Query(b.conn, "SELECT site, id, epoch, seq, since, row FROM quarantine WHERE retry_at <= ? ORDER BY id LIMIT ?", func(s *sqlite.Stmt) error {
		raw, _ := schema.ValueAt(s, 5).([]byte)
		due = append(due, quarantined{s.ColumnInt64(1), schema.StampOf(s), raw})
		return nil
	}, b.now.UnixNano(), limit)
	if err != nil {
		return err
	}
	for _, q := range due {
		b.refused = true
		if err := schema.Run(b.conn, "DELETE FROM quarantine WHERE id = ?", q.id); err != nil {
			return err
		}
		w, err := wire.DecodeRow(q.raw)
		if err != nil {
			continue // the row was too large to retain; anti-entropy will deliver it again
		}
		e, err := b.tables.Check(q.st.Site, w.Row())
		if err != nil || !e.Shared {
			continue
		}
		by := b.head(q.st.Stream).by
		if by == nil {
			continue // anti-entropy will deliver it again
		}
		e.Proof = wire.Proof{By: by, Sig: w.Sig}
		q.st.At = w.At
		if err := b.applyRow(q.st, &e); err != nil {
			return err
		}
	}
	return nil
}
