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

// Restore takes in a snapshot of a stream, all or nothing: it replaces all
// owned rows of the site and is merged with the shared ones. One that is older
// than what we have is ignored. r is read to the snapshot's end, before
// anything is written: a slow sender holds up no one else. CodeInvalid: it is
// malformed, cut short, of another stream or of our own. CodeForbidden: its
// site is not who it says. The caller sees to it that it comes from the site
// itself or from a member that may speak for it: owned rows are not signed one
// by one.
func (v *View) Restore(ctx context.Context, s wire.Stream, r io.Reader) error {
	err := v.copyIn(ctx, r, func(h wire.SnapshotHead) error {
		p, err := wire.TxHead{Site: h.Site, Epoch: h.Epoch, Seq: h.Seq, At: h.At}.Position()
		switch {
		case err != nil:
			return err
		case h.Shared || p.Stream != s:
			return bourse.Errorf(bourse.CodeInvalid, "it is not of this stream")
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

// RestoreShared merges the shared rows of another member into ours.
func (v *View) RestoreShared(ctx context.Context, r io.Reader) error {
	err := v.copyIn(ctx, r, func(h wire.SnapshotHead) error {
		if !h.Shared {
			return bourse.Errorf(bourse.CodeInvalid, "it is of a stream")
		}
		return nil
	}, func(b *batch, sp *wire.Spool) error { return b.restoreShared(sp) })
	if err != nil {
		return fmt.Errorf("restore shared rows: %w", err)
	}
	return nil
}

// copyIn takes in a snapshot that is whole and as it should be.
func (v *View) copyIn(ctx context.Context, r io.Reader, wanted func(wire.SnapshotHead) error, take func(*batch, *wire.Spool) error) (err error) {
	sp, err := wire.Receive(ctx, v.config.Path, r, wanted)
	if err != nil {
		return err
	}
	err = v.submit(ctx, true, func(b *batch) error { return sp.Use(func() error { return take(b, sp) }) })
	return errors.Join(err, sp.Close())
}

// restore replaces what we have of a stream.
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
	case b.ours(p.Stream):
		return bourse.Errorf(bourse.CodeInvalid, "a snapshot of our own stream")
	case p.Seq < b.head(p.Stream).seq || b.outlived(p.Stream):
		return nil
	case p.Epoch == newest:
		if err := b.disown(p.Site); err != nil {
			return err
		}
	}
	if err := b.advance(wire.Stamp{Position: p, At: sp.Head.At}, by); err != nil {
		return err
	}
	b.recent = append(b.recent, recent{Position: p})
	return sp.Rows(func(raw []byte, w wire.RowBody, err error) error {
		st := wire.Stamp{Position: wire.Position{Stream: p.Stream, Seq: w.Seq}, At: w.At}
		if err == nil && (w.Seq == 0 || w.Seq > p.Seq || w.At < 0) {
			err = fmt.Errorf("number %d in a snapshot up to %d", w.Seq, p.Seq)
		}
		return b.restoreRow(st, by, raw, w, err)
	})
}

// restoreShared merges shared rows of any streams. Each proves itself.
func (b *batch) restoreShared(sp *wire.Spool) error {
	type birth struct {
		of wire.Stream
		id string
	}
	authors := map[birth]*wire.Author{}
	return sp.Rows(func(raw []byte, w wire.RowBody, err error) error {
		p, bad := wire.TxHead{Site: w.Site, Epoch: w.Epoch, Seq: w.Seq, At: w.At}.Position()
		shared := all(err, bad, p.Site.Validate()) && w.Clock != 0
		at := birth{p.Stream, string(w.Birth)}
		by := authors[at]
		if by == nil {
			by = &wire.Author{Stream: p.Stream, Birth: sp.Births[at.id]}
			authors[at] = by
		}
		if !shared {
			b.forged++ // no one knows whose it is
			return nil
		}
		return b.restoreRow(wire.Stamp{Position: p, At: w.At}, by, raw, w, nil)
	})
}

// restoreRow takes in one row, or refuses it.
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
	return b.takeOne(st, &e)
}

// all reports whether none of these is an error.
func all(errs ...error) bool { return errors.Join(errs...) == nil }
