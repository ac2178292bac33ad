package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// GrantingTrader implements market.Trader. If an order creates a volume from another worker's
// volume or snapshot, GrantingTrader first asks the source worker to grant the claiming worker
// access to it.
type GrantingTrader struct {
	Trader
	Directory interface {
		ByTag(tag bourse.WorkerTag) (bourse.Member, bool)
	}
}

// Claim implements market.Trader. It does not send the claim if the source worker refuses access
// or cannot be reached.
func (g GrantingTrader) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	if spec := claim.Order.Volume; spec != nil {
		id, tag := string(spec.Source), spec.Source.Tag()
		if spec.Snapshot != "" {
			id, tag = string(spec.Snapshot), spec.Snapshot.Tag()
		}
		if id != "" && tag != to.Tag {
			grant, err := g.grant(ctx, tag, id, to.ID, claim.Order.App)
			if err != nil {
				return nil, nil, err
			}
			granted, volume := *claim, *spec // copies, because other goroutines may be reading the originals
			volume.Grant, granted.Order.Volume = grant, &volume
			claim = &granted
		}
	}
	return g.Trader.Claim(ctx, to, claim)
}

func (g GrantingTrader) grant(ctx context.Context, tag bourse.WorkerTag, id string, reader bourse.WorkerID, app bourse.App) (string, error) {
	source, ok := g.Directory.ByTag(tag)
	if !ok {
		return "", bourse.Errorf(bourse.CodeUnavailable, "the worker of %s cannot be reached", id)
	}
	grant, err := VolumeGrant.Call(ctx, g.Fabric, source, GrantRequest{ID: id, To: reader, App: app})
	if err != nil {
		return "", bourse.Errorf(bourse.CodeUnavailable, "worker %s does not allow %s to read %s: %w", source.ID, reader, id, err)
	}
	return grant, nil
}
