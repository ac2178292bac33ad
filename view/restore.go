package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Restore atomically applies a snapshot of a stream: it replaces all rows that the site owns, and
// merges the stream's shared rows. It ignores a snapshot that is older than the view's own
// contents. It reads the whole snapshot from r before it writes anything, so that a slow sender
// does not block other writes.
//
// The caller must ensure that the snapshot comes from the site itself or from a member that may provide snapshots,
// because owned rows are not signed individually. If the stream is superseded (see [View.Superseded]), any member may
// provide it.
//
// Errors: CodeInvalid if the snapshot is malformed or truncated, or contains another stream or this
// server's own stream; CodeForbidden if its birth certificate does not belong to the stream's site.
func (v *View) Restore(ctx context.Context, s wire.Stream, r io.Reader) error {
	err := v.receiveSnapshot(ctx, r, func(h wire.SnapshotHead) error {
		p, err := wire.TxHead{Site: h.Site, Epoch: h.Epoch, Seq: h.Seq, At: h.At}.Position()
		switch {
		case err != nil:
			return err
		case h.Shared || p.Stream != s:
			return bourse.Errorf(bourse.CodeInvalid, "the snapshot contains another stream")
		}
		if err := wire.CheckEpoch(s, v.config.Now()); err != nil {
			return err
		}
		return s.Site.Validate()
	}, func(b *batch, sp *wire.Spool) error { return b.restore(sp) })
	if err != nil {
		return fmt.Errorf("restore %s: %w", s.Site, err)
	}
	return nil
}

// RestoreShared reads a snapshot of another member's shared rows and merges the rows into the view.
func (v *View) RestoreShared(ctx context.Context, r io.Reader) error {
	err := v.receiveSnapshot(ctx, r, func(h wire.SnapshotHead) error {
		if !h.Shared {
			return bourse.Errorf(bourse.CodeInvalid, "it contains a stream")
		}
		return nil
	}, func(b *batch, sp *wire.Spool) error { return b.restoreShared(sp) })
	if err != nil {
		return fmt.Errorf("restore shared rows: %w", err)
	}
	return nil
}

// receiveSnapshot receives a complete snapshot and then calls take on the writer's goroutine to apply it. Before it
// reads the rows, it calls wanted with the snapshot's head, and stops if wanted returns an error.
func (v *View) receiveSnapshot(ctx context.Context, r io.Reader, wanted func(wire.SnapshotHead) error, take func(*batch, *wire.Spool) error) (err error) {
	sp, err := wire.Receive(ctx, v.config.Path, r, wanted)
	if err != nil {
		return err
	}
	err = v.submit(ctx, true, func(b *batch) error { return sp.Use(func() error { return take(b, sp) }) })
	return errors.Join(err, sp.Close())
}

// restore replaces a site's owned rows with those in a snapshot and merges the snapshot's shared rows.
func (b *batch) restore(sp *wire.Spool) error {
	p := wire.Position{Stream: wire.Stream{Site: bourse.WorkerID(sp.Head.Site), Epoch: sp.Head.Epoch}, Seq: sp.Head.Seq}
	by := &wire.Author{Stream: p.Stream, Birth: sp.Head.Birth}
	if err := by.Read(b.verifier.Keys); err != nil {
		return err
	}
	if known := b.head(p.Stream).by; known != nil && !known.Same(by) {
		return wire.ErrForged
	}
	switch newest := b.newestOf(p.Site); {
	case b.isOwn(p.Stream):
		return bourse.Errorf(bourse.CodeInvalid, "the snapshot contains this server's own stream")
	case p.Seq < b.head(p.Stream).seq || b.superseded(p.Stream):
		return nil
	case p.Epoch == newest:
		if err := b.deleteOwned(p.Site); err != nil {
			return err
		}
	}
	// The time is not signed. Limit it, because the stream will not expire until a day after that
	// time.
	at := min(sp.Head.At, b.now.Add(wire.MaxEpochSkew).UnixNano())
	if err := b.advance(wire.Stamp{Position: p, At: at}, by); err != nil {
		return err
	}
	b.recent = append(b.recent, recent{Position: p})
	return sp.Rows(func(raw []byte, w wire.RowBody, err error) error {
		st := wire.Stamp{Position: wire.Position{Stream: p.Stream, Seq: w.Seq}, At: w.At}
		if err == nil && (w.Seq == 0 || w.Seq > p.Seq || w.At < 0) {
			err = fmt.Errorf("the row was written by transaction %d, but the snapshot ends at %d", w.Seq, p.Seq)
		}
		return b.restoreRow(st, by, raw, w, err)
	})
}

// restoreShared merges a snapshot's shared rows. They may come from different streams, so each row
// is signed by the site that wrote it.
func (b *batch) restoreShared(sp *wire.Spool) error {
	type birth struct {
		of wire.Stream
		id string
	}
	authors := map[birth]*wire.Author{}
	return sp.Rows(func(raw []byte, w wire.RowBody, err error) error {
		p, bad := wire.TxHead{Site: w.Site, Epoch: w.Epoch, Seq: w.Seq, At: w.At}.Position()
		shared := allNil(err, bad, p.Site.Validate()) && w.Clock != 0
		at := birth{p.Stream, string(w.Birth)}
		by := authors[at]
		if by == nil {
			by = &wire.Author{Stream: p.Stream, Birth: sp.Births[at.id]}
			authors[at] = by
		}
		if !shared {
			b.forged++ // the row is not quarantined, because its origin is unknown
			return nil
		}
		return b.restoreRow(wire.Stamp{Position: p, At: w.At}, by, raw, w, nil)
	})
}

// restoreRow applies one row, or quarantines it if it cannot be applied.
func (b *batch) restoreRow(st wire.Stamp, by *wire.Author, raw []byte, w wire.RowBody, err error) error {
	var e schema.Entry
	if err == nil {
		e, err = b.tables.Check(st.Site, w.Row())
	}
	if err == nil && !e.Shared {
		err = by.CheckMay(false)
	}
	if err != nil {
		return b.refuse(refusal{Stamp: st, table: w.Table, key: w.Key, reason: err, raw: raw})
	}
	e.Proof = wire.Proof{By: by, Sig: bytes.Clone(w.Sig)}
	return b.applyRow(st, &e)
}

// allNil reports whether all arguments are nil.
func allNil(errs ...error) bool { return errors.Join(errs...) == nil }
