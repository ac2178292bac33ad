package view

import (
	"strings"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// Bounds of the quarantine. It is there to be looked at: it keeps the newest
// rows, and of each what fits.
const (
	maxQuarantine = 1000
	maxKeptRow    = 64 << 10
	maxReason     = 256
	healthNewest  = 20
)

// refusalOf says why a row was not taken in. It is kept as it is on the wire.
func refusalOf(e *schema.Entry, st wire.Stamp, reason error) refusal {
	r := refusal{Stamp: st, table: e.Table, key: e.Key, reason: reason}
	w := wire.RowBody{
		Table: e.Table, Key: e.Key, Columns: map[string]any{}, Deleted: e.Deleted, Clock: uint64(e.Clock), Seq: st.Seq, At: st.At,
	}
	w.Sig = e.Proof.Sig
	for _, c := range e.Change {
		w.Columns[c.Name] = c.Value
	}
	if raw, err := wire.EncodeBody(w); err == nil { // without it the row is only named
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
	if b.refusals++; b.refusals%maxQuarantine == 0 { // however many there are in one transaction
		if err := trimQuarantine(b.conn); err != nil {
			return err
		}
	}
	return schema.Run(b.conn, `INSERT INTO quarantine (site, epoch, seq, tbl, key, reason, row, since, retry_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.Site, r.Epoch, r.Seq, shown(r.table, wire.MaxName), shown(r.key, wire.MaxKey), shown(r.reason.Error(), maxReason), raw, b.now.UnixNano(), retry)
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
	return schema.Run(c, "DELETE FROM quarantine WHERE id <= (SELECT max(id) FROM quarantine) - ?", maxQuarantine)
}

// readQuarantine reads what Health says of it.
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

// quarantined is a row whose time has come.
type quarantined struct {
	id  int64
	st  wire.Stamp
	raw []byte
}

// release takes in the rows whose time has come, some at a time.
func (b *batch) release() error {
	const most = 256
	var due []quarantined
	err := schema.Query(b.conn, "SELECT site, id, epoch, seq, since, row FROM quarantine WHERE retry_at <= ? ORDER BY id LIMIT ?", func(s *sqlite.Stmt) error {
		raw, _ := schema.ValueAt(s, 5).([]byte)
		due = append(due, quarantined{s.ColumnInt64(1), schema.StampOf(s), raw})
		return nil
	}, b.now.UnixNano(), most)
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
			continue // it was too large to be kept; comparing shared rows brings it
		}
		e, err := b.tables.Check(q.st.Site, w.Row())
		if err != nil || !e.Shared {
			continue
		}
		by := b.head(q.st.Stream).by
		if by == nil {
			continue // comparing shared rows brings it
		}
		e.Proof = wire.Proof{By: by, Sig: w.Sig}
		q.st.At = w.At
		if err := b.takeOne(q.st, &e); err != nil {
			return err
		}
	}
	return nil
}
