package view

import (
	"context"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Prove returns an app with its proof. CodeNotFound: the view does not have it.
func (v *View) Prove(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	var app bourse.App
	err := v.Read(ctx, func(c *sqlite.Conn) error {
		found, err := inventory.App(name)(c)
		if err != nil {
			return err
		}
		if found == nil {
			return bourse.Errorf(bourse.CodeNotFound, "app %s is not in the view", name)
		}
		app = *found
		app.Proof, err = v.prove(c, wire.TableApps, string(name))
		return err
	})
	return app, err
}

// prove writes the proof of a shared row.
func (v *View) prove(c *sqlite.Conn, table, key string) ([]byte, error) {
	r, ok, err := v.tables.Find(c, table, true, "", key)
	if err != nil || !ok {
		return nil, err
	}
	id, sig, ok, err := schema.ProofOf(c, table, key)
	if err != nil || !ok {
		return nil, err
	}
	birth, err := schema.BirthOf(c, id)
	if err != nil {
		return nil, err
	}
	return wire.EncodeProof(r, birth, sig)
}

// Believe merges rows by their proofs, which may come from anybody: what they
// do not prove changes nothing. CodeInvalid: one of them is no proof at all.
func (v *View) Believe(ctx context.Context, proofs ...[]byte) error {
	list := make([]wire.ProvenRow, len(proofs))
	for i, b := range proofs {
		var err error
		if list[i], err = wire.OpenProof(b); err != nil {
			return fmt.Errorf("believe: %w", err)
		}
	}
	err := v.submit(ctx, true, func(b *batch) error {
		for _, p := range list {
			if err := b.restoreRow(p.Stamp, p.By, p.Raw, p.Row, nil); err != nil {
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
