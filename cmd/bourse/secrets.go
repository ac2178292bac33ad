package main

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/seal"
	"github.com/bourse-dev/bourse/worker/machines"
)

// workerSecrets is the view of secrets as a worker uses it.
type workerSecrets struct {
	*replica
	server *server
}

var _ machines.SecretsView = workerSecrets{}

// AwaitSynced implements machines.SecretsView. Where there is no other server there
// is nothing to wait for.
func (v workerSecrets) AwaitSynced(ctx context.Context) {
	if v.InSync() {
		return
	}
	select {
	case <-v.server.met():
	case <-time.After(joinPatience):
	case <-ctx.Done():
	}
	tick := time.NewTicker(syncedStep)
	defer tick.Stop()
	for !v.InSync() && len(v.server.members()) > 1 && ctx.Err() == nil {
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
