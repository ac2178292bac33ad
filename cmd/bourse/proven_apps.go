package main

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// provenApps is the workers as a broker asks them. What they report of apps is
// believed only as far as a broker has signed it: else a worker could give an
// app to whom it likes, whenever a view is new.
type provenApps struct {
	workers fabric.Fabric
	replica *replica
}

// Apps returns the apps that a worker keeps.
func (p provenApps) Apps(ctx context.Context, to bourse.Member) ([]bourse.App, error) {
	reported, err := fabric.AppList.Call(ctx, p.workers, to, "")
	if err != nil || !p.replica.certified {
		return reported, err
	}
	return p.replica.believe(ctx, reported)
}

// believe returns those of some apps that are proven, as our view has them now.
func (r *replica) believe(ctx context.Context, reported []bourse.App) ([]bourse.App, error) {
	var proofs [][]byte
	for _, app := range reported {
		have, ok, err := r.App(ctx, app.Name)
		if err != nil {
			return nil, err
		}
		if merged := have.Merge(app); len(app.Proof) > 0 && (!ok || merged.ID != have.ID || (merged.DeletedAt == nil) != (have.DeletedAt == nil)) {
			proofs = append(proofs, app.Proof)
		}
	}
	if len(proofs) > 0 {
		if err := r.Believe(ctx, proofs...); err != nil {
			return nil, err
		}
	}
	out := make([]bourse.App, 0, len(reported))
	for _, app := range reported {
		have, ok, err := r.App(ctx, app.Name)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, have)
		}
	}
	return out, nil
}
