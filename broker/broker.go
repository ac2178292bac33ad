package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/tenant"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/broker/openapi"

	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Exchange decides orders.
type Exchange interface {
	// Place fills the order or says why no worker would. The decision is returned
	// also with an error; one with CodeInsufficient is a refusal.
	Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error)
	// Quote goes through the motions of Place up to the claim.
	Quote(ctx context.Context, order bourse.Order) (bourse.Decision, error)
	// Reserve fills all orders, which are for capacity and of one reservation,
	// or none. The decision is that of the order that was not filled.
	Reserve(ctx context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error)
	// Decisions finds what this exchange decided lately: the order of this id,
	// and those of any app whose callers chose it.
	Decisions(id bourse.OrderID) []bourse.Decision
	// Recent returns the newest of those that keep wants, newest first.
	Recent(limit int, keep func(*bourse.Decision) bool) []bourse.Decision
	// Claiming finds where an order that is being placed was claimed last.
	Claiming(id bourse.OrderID) (bourse.Member, bool)
}

// Config is what a broker is made of.
type Config struct {
	Exchange  Exchange
	Directory lookup.Directory
	Workers   fabric.Fabric
	View      lookup.View
	Releases  tenant.ReleaseView // where those of apps are kept
	Queries   Queries            // nil: the view cannot be queried here
	Tokens    endpoint.Tokens    // nil: no credentials are asked for, which only loopback allows
	Issued    *endpoint.Issued   // tokens that are made here, which Tokens knows too; nil: none are made
	Counts    *endpoint.Counts   // default: counts that no one reads
	Metrics   http.Handler       // answers GET /metrics; default: with 404
	Log       *slog.Logger       // default: nothing is logged
	Region    bourse.Region      // where this broker is; shown in request ids
	Version   string             // shown by the health call
	Now       func() time.Time   // default time.Now
	Patience  time.Duration      // for workers asked side by side and for reads; default 2 s

	// Certified returns who a client without a token is, by the certificate that it
	// has shown; nil: no one.
	Certified func(*tls.ConnectionState) (endpoint.Identity, bool)

	// Health describes every member's copy of the view; nil if this broker cannot know.
	Health func(ctx context.Context) []machinesapi.MemberHealth

	// Copies returns the copies of apps that a worker keeps, as far as they are to be
	// believed; default: all.
	Copies func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)

	Proxies func() []bourse.Member // those that are heard from; nil: there are none

	Invitations Invitations // makes join tokens; nil: this broker cannot sign certificates

	Secrets tenant.SecretView // keeps the secrets of apps
	Keys    func() *seal.Keys // seal them, and are given to workers; nil: none can be set here
	Writer  seal.Writer       // who this broker is in versions of secrets

	Orders throttle.TurnsConfig // orders in progress
	Quotas lookup.Quotas
}

// Broker serves the public API. Make one with [New].
type Broker struct {
	handler  http.Handler
	ready    func() error
	failover *failover
}

// New makes a broker. It starts nothing.
func New(config Config) *Broker {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Counts == nil {
		config.Counts = endpoint.NewCounts()
	}
	if config.Metrics == nil {
		config.Metrics = http.NotFoundHandler()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Patience = cmp.Or(config.Patience, 2*time.Second)
	config.Region = cmp.Or(config.Region, "local")
	if config.Copies == nil {
		config.Copies = lookup.Asking(config.Workers, &fabric.AppList, "")
	}
	s, routes, others := compose(&config)
	config.Counts.Watch(s.Gate.Turns.Load)
	return &Broker{s.Routed(routes), s.Ready, others}
}

// compose makes the handlers, one for each noun, and returns the whole API, and what
// orders machines for proxies.
func compose(c *Config) (*endpoint.Server, []endpoint.Route, *failover) {
	sources := lookup.Sources{View: c.View, Directory: c.Directory, Workers: c.Workers, Patience: c.Patience, Now: c.Now, Log: c.Log}
	machines, volumes := lookup.NewMachines(sources), lookup.NewVolumes(sources)
	store, quotas := lookup.NewApps(sources, c.Copies), lookup.NewChecker(c.Quotas, machines)
	g := &endpoint.Gate{Tokens: c.Tokens, Certified: c.Certified, Apps: store, Quota: quotas, Turns: throttle.NewTurns(c.Orders)}
	sealed := tenant.NewSecrets(tenant.SecretsConfig{
		View: c.Secrets, Apps: store, Keys: c.Keys, Writer: c.Writer, MayHave: quotas.MayHaveSecrets, Now: c.Now, Patience: c.Patience,
	})
	known := func() error { return ready(c.Directory) }
	released := &tenant.Releases{View: c.Releases, Apps: store, Now: c.Now}
	others := &failover{Config: c, apps: store, quota: quotas, machines: machines, secrets: sealed}
	routes := slices.Concat(
		(&appHandler{c, store, quotas, machines, volumes, released, sealed}).routes(),
		released.Routes(),
		sealed.Routes(),
		(&orderHandler{c, g, store, quotas, machines, sealed}).routes(),
		(&machineHandler{c, g, store, quotas, machines, sealed}).routes(),
		(&volumeHandler{c, g, store, quotas, volumes, machines}).routes(),
		(&taskHandler{c, g, store, sealed}).routes(),
		(&reservationHandler{c, g}).routes(),
		(&imageHandler{c, store}).routes(),
		(&workerHandler{c, machines}).routes(),
		(&viewHandler{c, machines, volumes}).routes(),
		(&joinTokenHandler{c}).routes(),
		(&platformHandler{c}).routes(),
		(&tenant.Placements{Gate: g, Directory: c.Directory, Workers: c.Workers, Region: c.Region, Patience: min(c.Patience, readPatience)}).Routes(),
		(&tenant.OrgMachines{Apps: store, Machines: machines}).Routes(),
		(&tenant.Addresses{Apps: store}).Routes(),
		(&tenant.Unsupported{Apps: store}).Routes(),
		(&tenant.Proxies{Apps: store, Proxies: c.Proxies, Fabric: c.Workers, Patience: c.Patience}).Routes(),
		(&tenant.Tokens{Issued: c.Issued, Gate: g, Machines: machines, Now: c.Now}).Routes(),
	)
	server := &endpoint.Server{Gate: g, Ready: known, Unsupported: openapi.Unsupported(), Counts: c.Counts, Region: c.Region, Now: c.Now, Log: c.Log}
	return server, append(routes, openapi.Route(routes, c.Version)), others
}

// OrderFailover orders a machine like another one, for a proxy. Errors: those of
// failover.order, and unavailable if the broker does not know its cluster yet.
func (b *Broker) OrderFailover(ctx context.Context, like bourse.MachineID) (fabric.FailoverOrder, error) {
	if err := b.ready(); err != nil {
		return fabric.FailoverOrder{}, err
	}
	return b.failover.order(ctx, like)
}

// FailoverHandler returns the handler of fabric.FailoverPath. It does not check who the
// caller is.
func (b *Broker) FailoverHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order, err := b.OrderFailover(r.Context(), bourse.MachineID(r.URL.Query().Get("machine")))
		reply := fabric.FailoverReply{FailoverOrder: order}
		if err != nil {
			reply.Code, reply.Message = bourse.CodeOf(err), bourse.MessageOf(err)
		}
		_ = endpoint.WriteJSON(w, http.StatusOK, reply) // the proxy may have disconnected
	})
}

// Handler serves /v1.
func (b *Broker) Handler() http.Handler { return b.handler }
