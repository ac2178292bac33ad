package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// Placements signs and verifies placements. Type Placements in package view/wire implements it.
type Placements interface {
	// Sign returns the signed form of a placement.
	Sign(p bourse.Placement) ([]byte, error)
	// Verify decodes and verifies the signed form of a placement. Errors: forbidden if no
	// broker of the cluster has signed it; invalid if it cannot be decoded.
	Verify(signed []byte) (bourse.Placement, error)
}

// VerifyingFabric is a Fabric for brokers in a cluster with certificates. It clears the app of each machine or volume
// in a worker's reply unless a broker has placed the object in that app.
type VerifyingFabric struct {
	Fabric
	Placements Placements
}

// clearUnverified clears the app of each machine and volume in a reply unless a broker has placed the object in that
// app.
func (p VerifyingFabric) clearUnverified(from *bourse.Member, reply any) {
	_ = eachObject(reply,
		func(m *bourse.Machine) error {
			if !verifyMachine(p.Placements, from, m) {
				m.App, m.AppID = "", ""
			}
			return nil
		},
		func(v *bourse.Volume) error {
			if !verifyVolume(p.Placements, from, v) {
				v.App, v.AppID = "", ""
			}
			return nil
		}) // never fails, because both functions return nil
}

func verifyMachine(by Placements, from *bourse.Member, m *bourse.Machine) bool {
	p, err := by.Verify(m.Placement)
	return err == nil && p.Worker == from.ID && p.Places(m)
}

func verifyVolume(by Placements, from *bourse.Member, v *bourse.Volume) bool {
	p, err := by.Verify(v.Placement)
	return err == nil && p.Worker == from.ID && p.PlacesVolume(v)
}

// PlacingTrader implements market.Trader for a broker with a certificate. It signs a placement for each claim that
// creates a machine or volume, and rejects fills with a machine or volume that no broker has placed. Otherwise, a
// worker could pretend to have filled an order with such an object.
type PlacingTrader struct {
	GrantingTrader
	Placements Placements
}

// Ask implements market.Trader.
func (t PlacingTrader) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	members := make(map[bourse.WorkerID]*bourse.Member, len(to))
	for i := range to {
		members[to[i].ID] = &to[i]
	}
	t.GrantingTrader.Ask(ctx, to, order, func(q bourse.Quote) {
		if m := members[q.Worker]; m != nil && !t.verified(m, order, q.Fill()) {
			q = bourse.Quote{Worker: q.Worker, Region: q.Region, Refusal: &bourse.Refusal{
				Worker: q.Worker, Region: q.Region, Reason: bourse.RefusedNoAnswer, Detail: "the worker reports a fill that no broker has placed",
			}}
		}
		answer(q)
	})
}

// Claim implements market.Trader.
func (t PlacingTrader) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	if placesObject(&claim.Order) {
		signed, err := t.Placements.Sign(claim.Order.Placement(to.ID))
		if err != nil {
			return nil, nil, bourse.Errorf(bourse.CodeUnavailable, "sign placement of order: %w", err)
		}
		with := *claim // a copy, because other goroutines may be reading the original
		with.Placement = signed
		claim = &with
	}
	fill, refusal, err := t.GrantingTrader.Claim(ctx, to, claim)
	if err == nil && !t.verified(&to, &claim.Order, fill) {
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "worker %s filled order %s without its placement", to.ID, claim.Order.ID)
	}
	return fill, refusal, err
}

// placesObject reports whether filling an order creates a machine or volume for the order's
// app.
func placesObject(o *bourse.Order) bool { return o.Kind() != bourse.KindHold && !o.Warm() }

// verified reports whether the fill can be trusted. If the fill contains a machine or volume, a broker must have placed
// that object in the order's app.
func (t PlacingTrader) verified(from *bourse.Member, order *bourse.Order, fill *bourse.Fill) bool {
	if fill == nil {
		return true
	}
	switch fill.Kind() {
	case bourse.KindMachine:
		return verifyMachine(t.Placements, from, &fill.Machine) && fill.Machine.OwnedBy(&order.App)
	case bourse.KindVolume:
		return verifyVolume(t.Placements, from, fill.Volume) && fill.Volume.OwnedBy(&order.App)
	case bourse.KindTask, bourse.KindHold:
	}
	return true
}
