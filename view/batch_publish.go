package view

import (
	"fmt"

	"zombiezen.com/go/sqlite"
)

// maxBody of a transaction of ours: what its rows may take of MaxTx.
const maxBody = MaxTx - 1024

// writing collects what becomes our next transaction.
type writing struct {
	tx    *Transaction
	rows  [][]byte
	bytes int
}

// publish writes rows of ours that say something new. It gives the position of
// the last transaction, zero when there was nothing to say.
func (b *batch) publish(rows []entry) (Position, error) {
	var w writing
	var last Position
	for i := range rows {
		change, old, err := b.news(&rows[i])
		if err != nil {
			return last, err
		}
		if change == nil {
			continue
		}
		said := Row{Table: change.table, Key: change.key, Columns: change.change.asMap(), Deleted: change.deleted, Clock: change.clock}
		raw, err := b.encode(said, change)
		if err != nil {
			return last, err
		}
		if w.tx != nil && (len(w.rows) == MaxRows || w.bytes+len(raw) > maxBody) {
			if last, err = b.close(&w); err != nil {
				return last, err
			}
		}
		b.begin(&w)
		w.tx.Rows, w.rows, w.bytes = append(w.tx.Rows, said), append(w.rows, raw), w.bytes+len(raw)+8
		if err := b.write(stamp{w.tx.Position, w.tx.At}, change, old); err != nil {
			return last, err
		}
	}
	if w.tx == nil {
		return last, nil
	}
	return b.close(&w)
}

// encode writes a row of ours, and signs one that belongs to no site.
func (b *batch) encode(said Row, e *entry) ([]byte, error) {
	w, err := wireRowOf(said)
	if err != nil {
		return nil, err
	}
	if e.shared {
		r := b.version(stamp{Position: Position{Stream: b.self}}, e)
		if err := b.prove(&r); err != nil {
			return nil, err
		}
		e.proof, w.Sig = r.proof, r.proof.sig
	}
	return encodeRow(w)
}

// begin makes the next transaction of ours unless it has begun.
func (b *batch) begin(w *writing) {
	if w.tx == nil {
		w.tx = &Transaction{Position: Position{b.self, b.head(b.self).seq + 1}, At: b.now.UnixNano()}
	}
}

// close ends a transaction of ours.
func (b *batch) close(w *writing) (Position, error) {
	by := Seal{Cluster: b.notary.cluster, Key: b.pen.key, Prev: []byte(b.pen.prev)}
	if w.tx.Seq == 1 {
		by.Birth = b.pen.birth
	}
	encoded, err := encodeTx(w.tx, w.rows, by)
	if err != nil {
		return Position{}, err
	}
	b.pen.prev = string(Link(encoded))
	p := w.tx.Position
	b.published = append(b.published, announcement{w.tx, encoded})
	b.recent = append(b.recent, recent{p, encoded})
	err = b.advance(stamp{p, w.tx.At}, &author{stream: p.Stream, birth: b.pen.birth})
	*w = writing{}
	return p, err
}

// news cuts a row of ours down to what is new: nil when nothing is.
func (b *batch) news(e *entry) (change *entry, old *record, err error) {
	stands, ok, err := b.find(e.table, e.shared, b.self.Site, e.key)
	if err != nil {
		return nil, nil, err
	}
	if ok {
		old = &stands
	}
	lives := ok && !stands.deleted
	if e.deleted && !lives {
		return nil, nil, nil
	}
	out := *e
	if !e.deleted {
		delta := stands.cols.until(e.change)
		if lives && len(delta) == 0 {
			return nil, nil, nil
		}
		if !e.shared {
			out.change = delta
		}
	}
	if e.shared {
		out.clock = b.tick(stands.clock)
		if ok && order(stands, b.version(stamp{Position: Position{Stream: b.self}}, &out)) >= 0 {
			return nil, nil, nil // another app of that name was first
		}
	}
	return &out, old, nil
}

// version is what a change of a shared row makes of it.
func (b *batch) version(st stamp, e *entry) record {
	return record{stamp: st, table: e.table, key: e.key, shared: true, deleted: e.deleted, clock: e.clock, cols: e.change, proof: e.proof}
}

// write puts a change of ours into the file.
func (b *batch) write(st stamp, e *entry, old *record) error {
	switch {
	case e.shared:
		return b.replace(old, b.version(st, e))
	case e.deleted:
		return b.remove(*old)
	}
	r := record{stamp: st, table: e.table, key: e.key, cols: e.change.set()}
	if old != nil {
		r.cols = old.cols.with(e.change)
	}
	return b.replace(old, r)
}

// missing makes deletions of the rows of ours in some tables that are not among
// rows.
func (b *batch) missing(names []string, rows []entry) ([]entry, error) {
	type address struct{ table, key string }
	keep := make(map[address]bool, len(rows))
	for _, e := range rows {
		keep[address{e.table, e.key}] = true
	}
	var out []entry
	for _, name := range names {
		err := query(b.conn, fmt.Sprintf("SELECT key FROM %s%s WHERE site = ?", name, suffix), func(s *sqlite.Stmt) error {
			if key := s.ColumnText(0); !keep[address{name, key}] {
				out = append(out, entry{table: name, key: key, deleted: true})
			}
			return nil
		}, b.self.Site)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// announce makes the first transaction of a life even of nothing, so that
// others forget the lives before it.
func (b *batch) announce() (Position, error) {
	if b.head(b.self).seq > 0 {
		return Position{}, nil
	}
	var w writing
	b.begin(&w)
	return b.close(&w)
}

// renew begins a new life of ours, after the epoch given.
func (b *batch) renew(after uint64) error {
	if err := b.disown(b.self.Site); err != nil {
		return err
	}
	b.self.Epoch = max(uint64(max(b.now.UnixMilli(), 1)), after+1, b.self.Epoch+1)
	b.newest[b.self.Site] = b.self.Epoch
	b.pen = b.notary.newPen()
	b.lost = true
	return nil
}
