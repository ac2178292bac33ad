package view

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// wireProof is a shared row with all that it takes to believe it, for those who
// keep it elsewhere than in a view.
type wireProof struct {
	Row   []byte `cbor:"1,keyasint"` // a wireRow, with Site, Epoch and Sig
	Birth []byte `cbor:"2,keyasint"` // of the epoch
}

// maxProof bounds a proof that is taken in.
const maxProof = MaxRow + maxBirth + 1<<10

// Prove gives an app with its proof. CodeNotFound: the view does not have it.
func (v *View) Prove(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	var app bourse.App
	err := v.read(ctx, func(c *sqlite.Conn) error {
		list, err := readApps(c, appSQL, string(name))
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return bourse.Errorf(bourse.CodeNotFound, "app %s is not in the view", name)
		}
		app = list[0]
		app.Proof, err = v.prove(c, TableApps, string(name))
		return err
	})
	return app, err
}

// prove writes the proof of a shared row.
func (v *View) prove(c *sqlite.Conn, table, key string) ([]byte, error) {
	r, ok, err := v.tables[table].row(c, "", key)
	if err != nil || !ok {
		return nil, err
	}
	id, sig, ok, err := proofOf(c, table, key)
	if err != nil || !ok {
		return nil, err
	}
	var w wireProof
	err = query(c, "SELECT birth FROM births WHERE id = ?", func(s *sqlite.Stmt) error {
		w.Birth, _ = valueAt(s, 0).([]byte)
		return nil
	}, id)
	if err != nil {
		return nil, err
	}
	row := snapshotRow(r)
	row.Site, row.Epoch, row.Sig = string(r.Site), r.Epoch, sig
	if w.Row, err = encodeRow(row); err != nil {
		return nil, err
	}
	return wire.enc.Marshal(w)
}

// Believe merges rows by their proofs, which may come from anybody: what they
// do not prove changes nothing. CodeInvalid: one of them is no proof at all.
func (v *View) Believe(ctx context.Context, proofs ...[]byte) error {
	list := make([]proven, len(proofs))
	for i, b := range proofs {
		var err error
		if list[i], err = openProof(b); err != nil {
			return fmt.Errorf("believe: %w", err)
		}
	}
	err := v.submit(ctx, true, func(b *batch) error {
		for _, p := range list {
			if err := b.restoreRow(p.stamp, p.by, p.raw, p.row, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("believe: %w", err)
	}
	return nil
}

// proven is a proof, taken apart.
type proven struct {
	stamp
	by  *author
	row wireRow
	raw []byte
}

func openProof(b []byte) (proven, error) {
	var w wireProof
	if len(b) > maxProof {
		return proven{}, bourse.Errorf(bourse.CodeInvalid, "a proof of %d bytes, at most %d", len(b), maxProof)
	}
	if err := wire.dec.Unmarshal(b, &w); err != nil {
		return proven{}, bourse.Errorf(bourse.CodeInvalid, "a malformed proof: %w", err)
	}
	row, err := decodeRow(w.Row)
	if err != nil {
		return proven{}, bourse.Errorf(bourse.CodeInvalid, "a malformed proof: %w", err)
	}
	p, err := wireHeader{row.Site, row.Epoch, row.Seq, row.At}.position()
	if err == nil {
		err = p.Site.Validate()
	}
	if err == nil && row.Clock == 0 {
		err = bourse.Errorf(bourse.CodeInvalid, "a proof of an owned row")
	}
	return proven{stamp{p, row.At}, &author{stream: p.Stream, birth: w.Birth}, row, w.Row}, err
}
