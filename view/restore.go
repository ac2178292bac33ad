package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/bourse-dev/bourse"
)

// Restore takes in a snapshot of a stream, all or nothing: it replaces all
// owned rows of the site and is merged with the shared ones. One that is older
// than what we have is ignored. r is read to the snapshot's end, before
// anything is written: a slow sender holds up nobody else. CodeInvalid: it is
// malformed, cut short, of another stream or of our own. CodeForbidden: its
// site is not who it says. The caller sees to it that it comes from the site
// itself or from a member that may speak for it: owned rows are not signed one
// by one.
func (v *View) Restore(ctx context.Context, s Stream, r io.Reader) error {
	err := v.copyIn(ctx, r, func(h wireSnapshot) error {
		p, err := wireHeader{h.Site, h.Epoch, h.Seq, h.At}.position()
		switch {
		case err != nil:
			return err
		case h.Shared || p.Stream != s:
			return bourse.Errorf(bourse.CodeInvalid, "it is not of this stream")
		}
		if err := v.checkEpoch(s); err != nil {
			return err
		}
		return s.Site.Validate()
	}, func(b *batch, sp *spool) error { return b.restore(sp) })
	if err != nil {
		return fmt.Errorf("restore %s: %w", s.Site, err)
	}
	return nil
}

// RestoreShared merges the shared rows of another member into ours.
func (v *View) RestoreShared(ctx context.Context, r io.Reader) error {
	err := v.copyIn(ctx, r, func(h wireSnapshot) error {
		if !h.Shared {
			return bourse.Errorf(bourse.CodeInvalid, "it is of a stream")
		}
		return nil
	}, func(b *batch, sp *spool) error { return b.restoreShared(sp) })
	if err != nil {
		return fmt.Errorf("restore shared rows: %w", err)
	}
	return nil
}

// copyIn takes in a snapshot that is whole and as it should be.
func (v *View) copyIn(ctx context.Context, r io.Reader, wanted func(wireSnapshot) error, take func(*batch, *spool) error) (err error) {
	sp, err := v.spool(ctx, r, wanted)
	if err != nil {
		return err
	}
	err = v.submit(ctx, true, func(b *batch) error { return sp.use(func() error { return take(b, sp) }) })
	return errors.Join(err, sp.close())
}

// restore replaces what we have of a stream.
func (b *batch) restore(sp *spool) error {
	p := Position{Stream{bourse.WorkerID(sp.head.Site), sp.head.Epoch}, sp.head.Seq}
	by := &author{stream: p.Stream, birth: sp.head.Birth}
	if err := by.read(b.notary.keys); err != nil {
		return err
	}
	if known := b.head(p.Stream).by; known != nil && !known.same(by) {
		return errForged
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
	if err := b.advance(stamp{p, sp.head.At}, by); err != nil {
		return err
	}
	b.recent = append(b.recent, recent{Position: p})
	return sp.rows(func(raw []byte, w wireRow, err error) error {
		st := stamp{Position{p.Stream, w.Seq}, w.At}
		if err == nil && (w.Seq == 0 || w.Seq > p.Seq || w.At < 0) {
			err = fmt.Errorf("number %d in a snapshot up to %d", w.Seq, p.Seq)
		}
		return b.restoreRow(st, by, raw, w, err)
	})
}

// restoreShared merges shared rows of any streams. Each proves itself.
func (b *batch) restoreShared(sp *spool) error {
	type birth struct {
		of Stream
		id string
	}
	authors := map[birth]*author{}
	return sp.rows(func(raw []byte, w wireRow, err error) error {
		p, bad := wireHeader{w.Site, w.Epoch, w.Seq, w.At}.position()
		shared := all(err, bad, p.Site.Validate()) && w.Clock != 0
		at := birth{p.Stream, string(w.Birth)}
		by := authors[at]
		if by == nil {
			by = &author{stream: p.Stream, birth: sp.births[at.id]}
			authors[at] = by
		}
		if !shared {
			b.forged++ // no one knows whose it is
			return nil
		}
		return b.restoreRow(stamp{p, w.At}, by, raw, w, nil)
	})
}

// restoreRow takes in one row, or refuses it.
func (b *batch) restoreRow(st stamp, by *author, raw []byte, w wireRow, err error) error {
	var e entry
	if err == nil {
		e, err = b.tables.check(st.Site, w.row())
	}
	if err != nil {
		return b.refuse(refusal{stamp: st, table: w.Table, key: w.Key, reason: err, raw: raw})
	}
	e.proof = proof{by: by, sig: bytes.Clone(w.Sig)}
	return b.takeOne(st, &e)
}

// all reports whether none of these is an error.
func all(errs ...error) bool { return errors.Join(errs...) == nil }
