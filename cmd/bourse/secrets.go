package main

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/seal"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
	"github.com/bourse-dev/bourse/worker/machines"
)

var _ tenant.SecretView = brokerView{}

// Secrets returns the secrets of an app, sealed.
func (r *replica) Secrets(ctx context.Context, app string) ([]seal.Secret, error) {
	return view.Ask(ctx, r.View, inventory.Secrets(app))
}

// SecretMarks returns how far brokers have come in changing an app's secrets.
func (r *replica) SecretMarks(ctx context.Context, app string) (seal.Marks, error) {
	return view.Ask(ctx, r.View, inventory.SecretMarks(app))
}

// AwaitSecrets returns SecretMarks once they have a version, or as they are when
// ctx ends.
func (r *replica) AwaitSecrets(ctx context.Context, app string, version uint64) (seal.Marks, error) {
	marks, err := r.SecretMarks(ctx, app)
	if err != nil || marks.Has(version) {
		return marks, err
	}
	changes := r.Watch(wire.TableSecrets)
	defer changes.Stop()
	for {
		next, err := r.SecretMarks(ctx, app)
		if ctx.Err() != nil {
			return marks, nil
		}
		if marks = next; err != nil || marks.Has(version) {
			return marks, err
		}
		select {
		case <-changes.C:
		case <-ctx.Done():
			return marks, nil
		}
	}
}

// ChangeSecrets implements tenant.SecretView.
func (v brokerView) ChangeSecrets(ctx context.Context, c *seal.Change) (func(context.Context), error) {
	return v.put(ctx, inventory.SecretRows(c)...)
}

// ClearSecrets implements tenant.SecretView.
func (v brokerView) ClearSecrets(ctx context.Context, app string) error {
	list, err := v.Secrets(ctx, app)
	if err != nil {
		return err
	}
	marks, err := v.SecretMarks(ctx, app)
	if err != nil {
		return err
	}
	return v.write(ctx, inventory.ClearedSecrets(app, list, marks)...)
}

// workerSecrets is the view of secrets as a worker uses it.
type workerSecrets struct {
	*replica
	server *server
}

var _ machines.SecretsView = workerSecrets{}

// AwaitSynced implements machines.SecretsView. Where there is no other server there
// is nothing to wait for.
func (v workerSecrets) AwaitSynced(ctx context.Context) {
	if v.replicator.InSync() {
		return
	}
	select {
	case <-v.server.met():
	case <-time.After(joinPatience):
	case <-ctx.Done():
	}
	tick := time.NewTicker(syncedStep)
	defer tick.Stop()
	for !v.replicator.InSync() && len(v.server.members()) > 1 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// syncedStep is the time between two looks at whether a view that was made again
// has been compared with another one.
const syncedStep = 10 * time.Millisecond

// openKeys reads the broker's file of keys, and reads it again when it changes. It
// returns nil if the broker was started without one.
func (s *server) openKeys(file string) (func() *seal.Keys, error) {
	if file == "" {
		return nil, nil
	}
	live, err := admission.NewLive([]string{file}, func() (*seal.Keys, error) { return seal.Load(file) }, nil)
	if err != nil {
		return nil, err
	}
	s.watched = append(s.watched, live)
	return live.Get, nil
}
