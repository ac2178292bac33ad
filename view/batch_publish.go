package view

import (
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// maxBody is the maximum size, in bytes, of the encoded rows in a transaction that this server writes. It is
// less than MaxTx to leave space for the transaction's head.
const maxBody = wire.MaxTx - 1024

// writing collects rows for the next transaction.
type writing struct {
	tx    *wire.Transaction
	rows  [][]byte
	bytes int
}

// publish writes the given rows that differ from the stored rows. It returns the position of the last transaction
// written, or the zero Position if no row differs.
func (b *batch) publish(rows []schema.Entry) (wire.Position, error) {
	var w writing
	var last wire.Position
	for i := range rows {
		change, old, err := b.diff(&rows[i])
		if err != nil {
			return last, err
		}
		if change == nil {
			continue
		}
		said := wire.Row{Table: change.Table, Key: change.Key, Columns: change.Change.Map(), Deleted: change.Deleted, Clock: change.Clock}
		raw, err := b.encode(said, change)
		if err != nil {
			return last, err
		}
		if w.tx != nil && (len(w.rows) == wire.MaxRows || w.bytes+len(raw) > maxBody) {
			if last, err = b.close(&w); err != nil {
				return last, err
			}
		}
		b.begin(&w)
		w.tx.Rows, w.rows, w.bytes = append(w.tx.Rows, said), append(w.rows, raw), w.bytes+len(raw)+8
		if err := b.write(wire.Stamp{Position: w.tx.Position, At: w.tx.At}, change, old); err != nil {
			return last, err
		}
	}
	if w.tx == nil {
		return last, nil
	}
	return b.close(&w)
}

// encode encodes a row and, if the row is shared, signs it.
func (b *batch) encode(said wire.Row, e *schema.Entry) ([]byte, error) {
	w, err := wire.BodyOf(said)
	if err != nil {
		return nil, err
	}
	if e.Shared {
		r := b.version(wire.Stamp{Position: wire.Position{Stream: b.self}}, e)
		if err := b.sign(&r); err != nil {
			return nil, err
		}
		e.Proof, w.Sig = r.Proof, r.Proof.Sig
	}
	return wire.EncodeRow(w)
}

// sign signs a version of a shared row.
func (b *batch) sign(r *wire.Version) error {
	sig, err := wire.Sign(b.signer.Key, wire.Message(wire.SignedRow, b.verifier.Cluster, b.hasher.Encode(*r)))
	r.Proof = wire.Proof{By: &wire.Author{Stream: b.self, Birth: b.signer.Birth}, Sig: sig, Checked: true}
	return err
}

// begin starts the next transaction, unless one is already open.
func (b *batch) begin(w *writing) {
	if w.tx == nil {
		w.tx = &wire.Transaction{Position: wire.Position{Stream: b.self, Seq: b.head(b.self).seq + 1}, At: b.now.UnixNano()}
	}
}

// close completes the open transaction.
func (b *batch) close(w *writing) (wire.Position, error) {
	by := wire.SigningKey{Cluster: b.verifier.Cluster, Key: b.signer.Key, Prev: []byte(b.signer.Prev)}
	if w.tx.Seq == 1 {
		by.Birth = b.signer.Birth
	}
	encoded, err := wire.EncodeTx(w.tx, w.rows, by)
	if err != nil {
		return wire.Position{}, err
	}
	b.signer.Prev = string(wire.Link(encoded))
	p := w.tx.Position
	b.published = append(b.published, announcement{w.tx, encoded})
	b.recent = append(b.recent, recent{p, encoded})
	err = b.advance(wire.Stamp{Position: p, At: w.tx.At}, &wire.Author{Stream: p.Stream, Birth: b.signer.Birth})
	*w = writing{}
	return p, err
}

// diff compares a row with its stored version. It returns the change to write and the stored
// version. The change is nil if there is nothing to write. The change to an owned row contains only
// the columns that differ.
func (b *batch) diff(e *schema.Entry) (change *schema.Entry, old *wire.Version, err error) {
	stands, ok, err := b.tables.Find(b.conn, e.Table, e.Shared, b.self.Site, e.Key)
	if err != nil {
		return nil, nil, err
	}
	if ok {
		old = &stands
	}
	lives := ok && !stands.Deleted
	if e.Deleted && !lives {
		return nil, nil, nil
	}
	out := *e
	if !e.Deleted {
		delta := stands.Columns.Diff(e.Change)
		if lives && len(delta) == 0 {
			return nil, nil, nil
		}
		if !e.Shared {
			out.Change = delta
		}
	}
	if e.Shared {
		out.Clock = b.nextClock(stands.Clock)
		if ok && wire.Order(stands, b.version(wire.Stamp{Position: wire.Position{Stream: b.self}}, &out)) >= 0 {
			return nil, nil, nil // the stored version wins: for example, an older app has this name
		}
	}
	return &out, old, nil
}

// version returns the new version of a shared row after a change.
func (b *batch) version(st wire.Stamp, e *schema.Entry) wire.Version {
	return wire.Version{Stamp: st, Table: e.Table, Key: e.Key, Shared: true, Deleted: e.Deleted, Clock: e.Clock, Columns: e.Change, Proof: e.Proof}
}

// write applies a change to one of this server's rows in the file.
func (b *batch) write(st wire.Stamp, e *schema.Entry, old *wire.Version) error {
	switch {
	case e.Shared:
		return b.replace(old, b.version(st, e))
	case e.Deleted:
		return b.remove(*old)
	}
	r := wire.Version{Stamp: st, Table: e.Table, Key: e.Key, Columns: e.Change.Set()}
	if old != nil {
		r.Columns = old.Columns.With(e.Change)
	}
	return b.replace(old, r)
}

// missing returns a deletion for each row that this server owns in the named tables, except for those in current.
func (b *batch) missing(names []string, current []schema.Entry) ([]schema.Entry, error) {
	type address struct{ table, key string }
	keep := make(map[address]bool, len(current))
	for _, e := range current {
		keep[address{e.Table, e.Key}] = true
	}
	var out []schema.Entry
	for _, name := range names {
		keys, err := b.tables.Keys(b.conn, name, b.self.Site)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if !keep[address{name, key}] {
				out = append(out, schema.Entry{Table: name, Key: key, Deleted: true})
			}
		}
	}
	return out, nil
}

// ensureStarted writes an empty transaction if this server's stream does not contain any transaction yet. The
// transaction makes other members delete the server's rows from earlier epochs.
func (b *batch) ensureStarted() (wire.Position, error) {
	if b.head(b.self).seq > 0 {
		return wire.Position{}, nil
	}
	var w writing
	b.begin(&w)
	return b.close(&w)
}

// renew deletes this server's owned rows and starts a new stream whose epoch is greater than after.
func (b *batch) renew(after uint64) error {
	if err := b.deleteOwned(b.self.Site); err != nil {
		return err
	}
	b.self.Epoch = max(uint64(max(b.now.UnixMilli(), 1)), after+1, b.self.Epoch+1)
	b.newest[b.self.Site] = b.self.Epoch
	b.signer = b.verifier.NewSigner()
	b.lost = true
	return nil
}
