package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip"
)

// replica is a server's copy of the view with what keeps it in step with the
// others'.
type replica struct {
	*view.View
	replicator *gossip.Replicator
	directory  *gossip.Directory // set with the membership
	certified  bool              // what others say is believed by their certificates
	log        *slog.Logger
	dir        string // temporary, to be removed; "" for none
}

// openReplica opens the server's view and prepares its replication. The
// membership is opened after it, with the replicator as its rumours.
func (s *server) openReplica() error {
	r := &replica{log: s.log, certified: s.creds != nil}
	path := s.config.View
	if path == "" {
		var err error
		if r.dir, err = os.MkdirTemp("", "bourse-view-"); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "a place for the view: %w", err)
		}
		path = filepath.Join(r.dir, "view.db")
	}
	var err error
	var keys view.Keys // without certificates the view makes a key of its own
	if s.creds != nil {
		keys = s.creds
	}
	r.View, err = view.Open(view.Config{Path: path, Cluster: s.config.Cluster, Site: s.self.ID, Keys: keys, Role: s.self.Role, Log: s.log})
	if err != nil {
		return errors.Join(err, r.removeDir())
	}
	r.replicator = gossip.NewReplicator(gossip.ReplicatorConfig{
		View: r.View, Cluster: s.config.Cluster, Self: s.self, Release: version().Release, Caller: s.wire, Log: s.log,
		Certified: s.creds != nil,
		Members:   s.everybody,
		Changed:   s.changed,
	})
	s.replica = r
	return nil
}

func (r *replica) removeDir() error {
	if r.dir == "" {
		return nil
	}
	return os.RemoveAll(r.dir)
}

// close closes what openReplica opened, once its stage has ended or was never
// reached.
func (r *replica) close() error { return errors.Join(r.View.Close(), r.removeDir()) }

// viewing is the stage in which the view can be written. It is the first: the
// others tell it what they do.
func (s *server) viewing() stage { return stage{name: "view", run: s.replica.Run} }

// replication is the stage in which the view is kept in step with the others'.
// It has its first look when they have been met.
func (s *server) replication() stage {
	return stage{name: "replication", run: func(ctx context.Context) error {
		select {
		case <-s.met():
		case <-time.After(joinPatience):
		case <-ctx.Done():
			return nil
		}
		return s.replica.replicator.Run(ctx)
	}}
}

// directing is the stage in which the directory knows what is free.
func (s *server) directing() stage { return stage{name: "directory", run: s.replica.directory.Run} }

// withReplication serves other servers' replicators beside h. They are let in
// by their certificates; h lets in whom it wants.
func (s *server) withReplication(h http.Handler) http.Handler {
	inner := admission.Require(s.replica.replicator.Handler(), bourse.RoleWorker, bourse.RoleBroker)
	mux := http.NewServeMux()
	self := admission.Require(gossip.SelfHandler(s.groups...), bourse.RoleWorker, bourse.RoleBroker)
	mux.Handle(gossip.PathSelf, direct.Handler(s.self.ID, self))
	mux.Handle("/view/", direct.Handler(s.self.ID, inner))
	mux.Handle("/", h)
	return mux
}
