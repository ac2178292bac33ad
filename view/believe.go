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

// BelieveApps merges the proven parts of a worker's report about apps into the view, and
// returns the reported apps as the view has them then. Without proofs a worker could give
// an app to anybody whenever a view is new. CodeInvalid: something is not a proof.
func (v *View) BelieveApps(ctx context.Context, reported []bourse.App) ([]bourse.App, error) {
	var proofs [][]byte
	for _, app := range reported {
		have, err := v.App(ctx, app.Name)
		if err != nil {
			return nil, err
		}
		if len(app.Proof) > 0 && (have == nil || changes(have, app)) {
			proofs = append(proofs, app.Proof)
		}
	}
	if len(proofs) > 0 {
		if err := v.Believe(ctx, proofs...); err != nil {
			return nil, err
		}
	}
	out := make([]bourse.App, 0, len(reported))
	for _, app := range reported {
		have, err := v.App(ctx, app.Name)
		if err != nil {
			return nil, err
		}
		if have != nil {
			out = append(out, *have)
		}
	}
	return out, nil
}

// changes reports whether merging a reported app would change the view.
func changes(have *bourse.App, reported bourse.App) bool {
	merged := have.Merge(reported)
	return merged.ID != have.ID || (merged.DeletedAt == nil) != (have.DeletedAt == nil)
}
