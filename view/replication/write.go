package replication

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// copies is the number of other members that should store a change before Write returns, so that the
// change survives the loss of this server's host. Write waits at most copyTime for them.
const (
	copies   = 2
	copyTime = time.Second
)

// Write publishes rows and returns once a few other members have stored them, or after a second. It returns
// CodeUnavailable if the rows could not be written to the view's file.
func (r *Replicator) Write(ctx context.Context, rows ...wire.Row) error {
	spread, err := r.write(ctx, rows...)
	if err == nil {
		spread(ctx)
	}
	return err
}

// write publishes rows and returns a function that waits until a few other members have stored them. If they do not
// respond in time, the function only logs a warning, because the rows are already in this server's file and will spread
// later.
func (r *Replicator) write(ctx context.Context, rows ...wire.Row) (spread func(context.Context), err error) {
	at, err := r.view.Publish(ctx, rows...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		if err := r.AwaitCopies(ctx, at, copies); err != nil {
			r.config.Log.Warn("change reached fewer members than intended", "table", rows[0].Table, "err", err)
		}
	}, nil
}

// PutApp writes an app's record to the view. It returns the result of merging that record with the
// existing one.
func (r *Replicator) PutApp(ctx context.Context, app bourse.App) (bourse.App, error) {
	if err := r.Write(ctx, inventory.AppRow(app)); err != nil {
		return app, err
	}
	merged, err := r.view.App(ctx, app.Name)
	if err != nil || merged == nil {
		return app, err
	}
	return *merged, nil
}

// RemoveMember records that a server has been removed. Every member then deletes the rows that the
// removed server owns. If that server's newest epoch is in the future, because its clock was ahead,
// the removal covers this epoch too.
func (r *Replicator) RemoveMember(ctx context.Context, m bourse.Member) error {
	at := time.Now()
	if newest := time.UnixMilli(int64(r.view.LatestEpoch(m.ID))); newest.After(at) {
		at = newest
	}
	return r.Write(ctx, inventory.RemovedRow(&m, at))
}

// PutToken writes a token's record. If there are two versions of it, the revoked one takes
// precedence.
func (r *Replicator) PutToken(ctx context.Context, t *inventory.Token) error {
	return r.Write(ctx, inventory.TokenRow(t))
}

// PutWireGuardPeer writes a laptop's record. If there are two versions of the record, the
// one that is marked as removed takes precedence.
func (r *Replicator) PutWireGuardPeer(ctx context.Context, p *inventory.WireGuardPeer) error {
	return r.Write(ctx, inventory.WireGuardRow(p))
}

// PutPolicy writes a policy. It replaces any policy with the same region and use.
func (r *Replicator) PutPolicy(ctx context.Context, p *inventory.Policy) error {
	return r.Write(ctx, inventory.PolicyRow(p))
}

// DropPolicy removes the policy with p's region and use.
func (r *Replicator) DropPolicy(ctx context.Context, p *inventory.Policy) error {
	return r.Write(ctx, inventory.PolicyGone(p))
}

// PutRelease writes the record of a release.
func (r *Replicator) PutRelease(ctx context.Context, made *release.Release) error {
	return r.Write(ctx, inventory.ReleaseRow(made))
}

// DropReleases removes the records of releases.
func (r *Replicator) DropReleases(ctx context.Context, ids []release.ID) error {
	rows := make([]wire.Row, len(ids))
	for i, id := range ids {
		rows[i] = inventory.ReleaseGone(id)
	}
	return r.Write(ctx, rows...)
}

// RecordCancellation records that an order has been canceled on a worker, which must then no longer
// fill it.
func (r *Replicator) RecordCancellation(ctx context.Context, order bourse.OrderID, at bourse.WorkerID) error {
	return r.Write(ctx, inventory.CanceledRow(order, at))
}

// ChangeSecrets writes a change to an app's secrets and returns a function that waits until a few other members have
// stored the change.
func (r *Replicator) ChangeSecrets(ctx context.Context, c *seal.Change) (spread func(context.Context), err error) {
	return r.write(ctx, inventory.SecretRows(c)...)
}

// ClearSecrets deletes all secrets of the app with this ID.
func (r *Replicator) ClearSecrets(ctx context.Context, app string) error {
	list, err := r.view.Secrets(ctx, app)
	if err != nil {
		return err
	}
	marks, err := r.view.SecretMarks(ctx, app)
	if err != nil {
		return err
	}
	return r.Write(ctx, inventory.ClearedSecrets(app, list, marks)...)
}
