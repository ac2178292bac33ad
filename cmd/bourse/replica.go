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
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/tempdir"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/replication"
	"github.com/bourse-dev/bourse/view/wire"
)

// replica contains a server's copy of the view, and the parts that replicate it.
type replica struct {
	*view.View
	*replication.Replicator
	directory *gossip.Directory // set once the membership is open
	dir       *tempdir.Dir      // directory of a temporary view; nil if the view is persistent
}

// openReplica opens the server's view and prepares its replication. The membership,
// which transports the replicator's messages, is opened later.
func (s *server) openReplica() error {
	r := &replica{}
	path := s.config.View
	if path == "" {
		var err error
		if r.dir, err = makeViewDir(s.log); err != nil {
			return err
		}
		path = filepath.Join(r.dir.Path, "view.db")
	}
	var err error
	var keys wire.Keys // nil without certificates; the view then creates its own key
	if s.creds != nil {
		keys = s.creds
	}
	r.View, err = view.Open(view.Config{Path: path, Cluster: s.config.Cluster, Site: s.self.ID, Keys: keys, Role: s.self.Role, Certified: s.creds != nil, Log: s.log})
	if err != nil {
		return errors.Join(err, r.removeDir())
	}
	r.Replicator = replication.New(replication.Config{
		View: r.View, Cluster: s.config.Cluster, Self: s.self, Release: version().Release, Caller: s.wire, Log: s.log,
		Certified: s.creds != nil,
		Members:   s.members,
		Changed:   s.changed,
	})
	s.replica = r
	return nil
}

// makeViewDir creates a directory for the view of a server without --data. It also
// removes the directories of servers that were killed.
func makeViewDir(log *slog.Logger) (*tempdir.Dir, error) {
	const prefix = "bourse-view-"
	if _, err := tempdir.RemoveLeftover(os.TempDir(), prefix, func(string) error { return nil }); err != nil {
		log.Warn("remove views of killed servers failed", "err", err)
	}
	dir, err := tempdir.Make(os.TempDir(), prefix)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "create a directory for the view: %w", err)
	}
	return dir, nil
}

func (r *replica) removeDir() error {
	if r.dir == nil {
		return nil
	}
	return r.dir.Remove()
}

// close closes everything that openReplica opened. The replication stage must not be
// running.
func (r *replica) close() error { return errors.Join(r.View.Close(), r.removeDir()) }

// viewStage returns the stage during which the view accepts writes. It must come before
// the stages that write to the view.
func (s *server) viewStage() stage { return stage{name: "view", run: s.replica.View.Run} }

// replication returns the stage that replicates the view. It begins once the server has
// contacted the other members.
func (s *server) replication() stage {
	return stage{name: "replication", run: func(ctx context.Context) error {
		select {
		case <-s.contacted():
		case <-time.After(joinTimeout):
		case <-ctx.Done():
			return nil
		}
		return s.replica.Replicator.Run(ctx)
	}}
}

// directoryStage returns the stage that keeps the directory of members up to date.
func (s *server) directoryStage() stage {
	return stage{name: "directory", run: s.replica.directory.Run}
}

// withReplication returns a handler that serves the paths that other servers call, and
// passes all other requests to h. With TLS, the servers' paths accept only callers with a
// server's certificate. For the other requests, h itself checks the caller.
func (s *server) withReplication(h http.Handler) http.Handler {
	inner := admission.Require(s.replica.Handler(), bourse.ServerRoles()...)
	mux := http.NewServeMux()
	self := admission.Require(gossip.SelfHandler(s.groups...), bourse.ServerRoles()...)
	mux.Handle(gossip.PathSelf, direct.Handler(s.self.ID, self))
	members := admission.Require(gossip.MembersHandler(version().Release, s.members), bourse.ServerRoles()...)
	mux.Handle(gossip.PathMembers, direct.Handler(s.self.ID, members))
	mux.Handle("/view/", direct.Handler(s.self.ID, inner))
	s.sharePaths(mux)
	if s.orders != nil {
		mux.Handle("POST "+fabric.FailoverPath, s.orders)
	}
	mux.Handle("/", h)
	return mux
}
