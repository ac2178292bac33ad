package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/internal/metrics"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/internal/tuning"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/gossip"
)

// server contains the parts that are common to servers of all roles.
type server struct {
	config       *serve.ServerConfig
	log          *slog.Logger
	creds        *admission.Credentials // nil if the cluster has no certificates
	secret       loopback.Secret        // shared by the cluster's servers on this host's loopback; "" if servers need no secret
	link         *nats.Link             // nil if the server is not on NATS
	listener     net.Listener           // listener of the API
	wire         *direct.Fabric         // calls to other servers
	replica      *replica
	groups       []*gossip.Members // memberships, one for each network; if there are two, the first one is on NATS
	groupChanges combinedChanges   // reports membership changes if there are two groups
	self         bourse.Member
	watched      []admission.Watched                        // credential files, which are reloaded when they change
	deskFiles    []admission.Watched                        // subset of watched that a broker uses to admit hosts
	orders       http.Handler                               // handler that places orders for proxies; nil unless the server is a broker
	tracer       *trace.Tracer                              // nil if tracing is disabled
	shared       map[machinesapi.SharedKey]*enroll.KeyFile  // files of the keys that brokers can replace
	secretsKeys  func() *seal.Keys                          // returns a broker's secrets keys; nil if it has none
	rotations    map[machinesapi.SharedKey]*enroll.Rotation // a broker's rotations of the shared keys
	extra        func(*serve.Ready)                         // adds a role's own fields to the ready message; may be nil
}

// joinTimeout limits how long a server waits for the other members before it reports
// that it is ready. After that, it continues to contact members that do not answer.
const joinTimeout = 2 * time.Second

// openServer opens the server's listeners and view, but starts nothing. tag is the tag
// of a worker that has run before, or 0. The caller must call close.
func openServer(ctx context.Context, config *serve.ServerConfig, id bourse.WorkerID, role bourse.Role, tag bourse.WorkerTag) (*server, error) {
	tuning.RuntimeOfServer()
	s := &server{
		groupChanges: combinedChanges{changed: make(chan struct{})},
		shared:       map[machinesapi.SharedKey]*enroll.KeyFile{}, rotations: map[machinesapi.SharedKey]*enroll.Rotation{},
		config: config, log: config.Log.Logger(os.Stderr).With(string(role), string(id)),
	}
	var err error
	if config.Credentials.TLS() {
		s.creds, err = admission.Load(config.Credentials.Files)
		if err != nil {
			return nil, err
		}
		s.watched = append(s.watched, renewing{s})
		if self := (admission.Identity{ID: id, Role: role}); s.creds.Self() != self {
			return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate in --credentials belongs to %s %s, not to %s %s", s.creds.Self().Role, s.creds.Self().ID, role, id)
		}
		s.shareCA()
	}
	s.self = bourse.Member{ID: id, Role: role, Region: config.Region, Tag: tag}
	if err := errors.Join(s.ownTag(), s.openSecret()); err != nil {
		return nil, err
	}
	if s.tracer, err = s.openTracer(ctx); err != nil {
		return nil, err
	}
	err = s.openNetworks(ctx)
	if err == nil {
		err = s.openReplica()
	}
	if err != nil {
		s.closeNetworks()
		return nil, err
	}
	if err := s.openGroups(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.replica.directory = gossip.NewDirectory(s.replica.View, s.groups[0], s.groups[1:]...)
	s.replica.directory.Source(s.replica.Replicator)
	return s, nil
}

// close closes everything that openServer opened.
func (s *server) close() error {
	if err := s.tracer.Close(); err != nil {
		s.log.Warn("export of last traces failed", "err", err)
	}
	s.closeNetworks()
	return s.replica.close()
}

// openTracer returns a tracer, or nil if the environment does not configure a trace collector.
func (s *server) openTracer(ctx context.Context) (*trace.Tracer, error) {
	t, err := trace.Open(ctx, trace.Config{
		Service: "bourse-" + string(s.self.Role), ID: string(s.self.ID), Region: string(s.self.Region), Version: version().Release,
		Getenv: os.Getenv, Log: s.log,
	})
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "OTEL_EXPORTER_OTLP_…: %w", err)
	}
	return t, nil
}

func listen(what string, a netip.AddrPort) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", a.String())
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, bourse.Errorf(bourse.CodeConflict, "%s: %w", what, err)
	case err != nil:
		return nil, bourse.Errorf(bourse.CodeInvalid, "%s: %w", what, err)
	}
	return l, nil
}

// reachable returns an address where other servers can reach the listener with address a. If a is
// unspecified, it uses the host's first global unicast address or, if there is none, 127.0.0.1.
func reachable(a netip.AddrPort) netip.AddrPort {
	if !a.Addr().IsUnspecified() {
		return a
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return a
	}
	for _, x := range addrs {
		if prefix, err := netip.ParsePrefix(x.String()); err == nil && prefix.Addr().IsGlobalUnicast() && !prefix.Addr().IsLoopback() {
			return netip.AddrPortFrom(prefix.Addr(), a.Port())
		}
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
}

// watchStage returns the stage that reloads credential files when they change.
func (s *server) watchStage() stage {
	return stage{name: "credentials", run: func(ctx context.Context) error {
		admission.Watch(ctx, s.log, s.watched...)
		return nil
	}}
}

// awaitKnown waits up to joinTimeout until a broker or proxy has received another member's view of
// the cluster. Clients expect a broker or proxy to answer once it has reported that it is ready.
// awaitKnown returns immediately if there are no other members or the server is a worker.
func (s *server) awaitKnown(ctx context.Context) {
	if s.self.Role == bourse.RoleWorker || len(s.members()) < 2 {
		return
	}
	select {
	case <-s.replica.directory.Known():
	case <-time.After(joinTimeout):
		s.log.Warn("view is not synchronized with cluster yet")
	case <-ctx.Done():
	}
}

// announce returns the last stage, which writes the ready message and the ready file.
func (s *server) announce() stage {
	return stage{name: "announce", run: func(ctx context.Context) error {
		select {
		case <-s.contacted():
		case <-time.After(joinTimeout):
		case <-ctx.Done():
			return nil
		}
		s.awaitKnown(ctx)
		ready := serve.Ready{
			ID: string(s.self.ID), Role: s.self.Role, Region: s.self.Region,
			API: s.listener.Addr().String(), Gossip: s.groups[0].Addr(), Members: max(len(s.members()), 1), PID: os.Getpid(),
		}
		if s.extra != nil {
			s.extra(&ready)
		}
		withdraw, err := s.config.Announce(os.Stdout, ready)
		if err != nil {
			return err
		}
		defer withdraw()
		s.log.Info("serving", "api", s.listener.Addr().String(), "gossip", s.groups[0].Addr(), "members", ready.Members)
		<-ctx.Done()
		return nil
	}}
}

// metrics returns the metrics that servers of all roles report.
func (s *server) metrics() *metrics.Server {
	source := metrics.Source{
		Self: s.self, Version: version().Release, Members: s.members, View: s.replica.View.Health,
	}
	if s.self.Role != bourse.RoleWorker { // a worker's directory does not track absent workers
		source.Absent = func() int {
			_, away := s.replica.directory.All()
			return len(away)
		}
	}
	if s.creds != nil {
		source.Expires = s.creds.Expires
	}
	return metrics.New(source)
}

// withMetrics adds the worker's metrics to its API. Scrapers may read only the metrics.
func (h *host) withMetrics(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", admission.Require(api, bourse.ServerRoles()...))
	mux.Handle(fabric.WorkerMetrics.Path(), admission.Require(direct.Handler(h.self.ID, h.worker.Handler()), fabric.WorkerMetrics.Roles...))
	return mux
}

// scraperOf returns the scraper that a certificate identifies. Clients other than scrapers do not
// authenticate with certificates.
func scraperOf(shown *tls.ConnectionState) (endpoint.Identity, bool) {
	if len(shown.PeerCertificates) == 0 {
		return endpoint.Identity{}, false
	}
	who, err := admission.IdentityOf(shown.PeerCertificates[0])
	if err != nil || who.Role != bourse.RoleScraper {
		return endpoint.Identity{}, false
	}
	return endpoint.Identity{Name: string(who.ID), Scraper: true}, true
}
