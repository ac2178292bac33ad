package main

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// lockOutRetry is the delay before lockOut reads the view again after an error.
const lockOutRetry = 5 * time.Second

// lockOut returns the stage that refuses servers that were removed from the cluster. It
// does so as soon as the view contains their removal.
func (s *server) lockOut() stage {
	return stage{name: "lock-out", run: func(ctx context.Context) error {
		if s.creds == nil { // without certificates, a removed server cannot be recognized
			<-ctx.Done()
			return nil
		}
		watcher := s.replica.Watch(wire.TableRemoved)
		defer watcher.Stop()
		known := map[bourse.WorkerID]time.Time{}
		for {
			var again <-chan time.Time
			if err := s.refuseRemoved(ctx, known); err != nil && ctx.Err() == nil {
				s.log.Warn("read removed servers from view failed, will retry", "err", err)
				again = time.After(lockOutRetry)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-watcher.C:
			case <-again:
			}
		}
	}}
}

// refuseRemoved refuses all servers whose removal is in the view, except this server
// itself. It adds them to known, which contains the removals that this process has
// already applied.
func (s *server) refuseRemoved(ctx context.Context, known map[bourse.WorkerID]time.Time) error {
	list, err := s.replica.Removed(ctx)
	if err != nil {
		return err
	}
	var added []bourse.WorkerID
	for _, m := range list {
		if at, ok := known[m.ID]; m.ID != s.self.ID && (!ok || m.At.After(at)) {
			known[m.ID] = m.At
			added = append(added, m.ID)
		}
	}
	if len(added) == 0 {
		return nil
	}
	closed := s.creds.SetRemoved(known)
	for _, id := range added {
		for _, group := range s.groups {
			group.Recheck(id)
		}
	}
	s.log.Info("removed servers locked out", "servers", added, "connections_closed", closed)
	return nil
}
