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

// Proof returns the app with this name and sets the app's Proof field. It returns CodeNotFound if the app is not in the
// view.
func (v *View) Proof(ctx context.Context, name bourse.AppName) (bourse.App, error) {
	var app bourse.App
	err := v.Read(ctx, func(c *sqlite.Conn) error {
		found, err := inventory.App(name)(c)
		if err != nil {
			return err
		}
		if found == nil {
			return bourse.Errorf(bourse.CodeNotFound, "app %s not found in the view", name)
		}
		app = *found
		app.Proof, err = v.prove(c, wire.TableApps, string(name))
		return err
	})
	return app, err
}

// prove returns the encoded proof of a shared row.
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

// MergeProofs verifies proofs and merges the rows that they contain into the view. The proofs may come from anyone,
// because only rows with valid signatures change the view. MergeProofs returns CodeInvalid if a proof is malformed.
func (v *View) MergeProofs(ctx context.Context, proofs ...[]byte) error {
	list := make([]wire.ProvenRow, len(proofs))
	for i, b := range proofs {
		var err error
		if list[i], err = wire.OpenProof(b); err != nil {
			return fmt.Errorf("merge proofs: %w", err)
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
		return fmt.Errorf("merge proofs: %w", err)
	}
	return nil
}

// MergeAppProofs merges a worker's reported apps into the view, unless their proofs are missing or invalid, and returns
// the view's current records of the reported apps. It returns CodeInvalid if a proof is malformed. Proofs are required
// because otherwise a worker could assign an app to any organization before the view has received the app's record.
func (v *View) MergeAppProofs(ctx context.Context, reported []bourse.App) ([]bourse.App, error) {
	var proofs [][]byte
	for _, app := range reported {
		have, err := v.App(ctx, app.Name)
		if err != nil {
			return nil, err
		}
		if len(app.Proof) > 0 && (have == nil || changesApp(have, app)) {
			proofs = append(proofs, app.Proof)
		}
	}
	if len(proofs) > 0 {
		if err := v.MergeProofs(ctx, proofs...); err != nil {
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

// changesApp reports whether merging a reported app into the view's current record would change
// that record.
func changesApp(current *bourse.App, reported bourse.App) bool {
	merged := current.Merge(reported)
	return merged.ID != current.ID || (merged.DeletedAt == nil) != (current.DeletedAt == nil)
}
