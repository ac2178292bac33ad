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
	"github.com/bourse-dev/bourse/market"
)

// Exchange places orders on workers. *market.Exchange implements it.
type Exchange interface {
	// Place fills the order, or returns an error if no worker accepts it. It returns the decision in either case.
	// CodeInsufficient means that the order was refused.
	Place(ctx context.Context, order bourse.Order) (bourse.Fill, bourse.Decision, error)
	// Quote makes the same decision as Place, but does not claim a worker.
	Quote(ctx context.Context, order bourse.Order) (bourse.Decision, error)
	// Reserve fills all orders or none of them. All orders must belong to the same reservation. If
	// one of them cannot be filled, the decision describes that order.
	Reserve(ctx context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error)
	// Decisions returns the decision about the order with this ID, if this exchange made it recently. Otherwise, it
	// returns the recent decisions about all orders, in any app, for which a client chose this ID.
	Decisions(id bourse.OrderID) []bourse.Decision
	// Recent returns the latest decisions for which keep returns true, newest first. It returns at
	// most limit decisions.
	Recent(limit int, keep func(*bourse.Decision) bool) []bourse.Decision
	// Claiming returns the worker to which the most recent claim for the order was sent. It returns false if the order
	// is not in progress or has not been claimed.
	Claiming(id bourse.OrderID) (bourse.Member, bool)
	// Comparisons compares the current policies with the current shadow policies, based on this exchange's orders.
	Comparisons() []market.Comparison
}

// Config configures a Broker.
type Config struct {
	Exchange  Exchange
	Directory lookup.Directory
	Workers   fabric.Fabric
	View      lookup.View
	Releases  tenant.ReleaseView // stores the releases of apps
	Queries   Queries            // nil: this broker cannot query the view
	Tokens    endpoint.Tokens    // nil: no credentials are required, which is permitted only on loopback
	// Issued stores and verifies the tokens that brokers create. The Tokens field must accept these tokens as well. If
	// Issued is nil, this broker cannot create tokens.
	Issued  *endpoint.Issued
	Counts  *endpoint.Counts // default: counters that are not exported
	Metrics http.Handler     // serves GET /metrics; default: replies with 404
	Log     *slog.Logger     // default: log entries are discarded
	Region  bourse.Region    // the broker's region; part of request IDs
	Version string           // reported by the health endpoint
	Now     func() time.Time // default time.Now
	Timeout time.Duration    // time limit for reads and for calls to several workers in parallel; default 2 s

	// Certified returns the identity of a client that has sent no token, based on its certificate.
	// If Certified is nil, such clients have no identity.
	Certified func(*tls.ConnectionState) (endpoint.Identity, bool)

	// Health returns every member's report about its copy of the view. It is nil if this broker cannot ask the members.
	Health func(ctx context.Context) []machinesapi.MemberHealth

	// Copies returns a worker's stored copies of app records after verifying them. By default, the worker's copies are
	// used without verification.
	Copies func(ctx context.Context, worker bourse.Member) ([]bourse.App, error)

	// Members returns the current members of all roles. By default, it returns the workers in Directory.
	Members func() []bourse.Member
	Self    bourse.WorkerID // ID of this broker
	LockOut bool            // a removed server can be locked out, because servers have certificates

	// Rotate carries out the next step of a shared key's rotation. It is nil if servers have no
	// certificates; keys can then be replaced only by hand.
	Rotate func(ctx context.Context, key machinesapi.SharedKey, in machinesapi.Rotate) (machinesapi.Rotation, error)

	Invitations Invitations // creates join tokens; nil: this broker cannot sign certificates

	WireGuard tenant.WireGuardView // stores the laptops in private networks

	Policies *Policies // the policies by which Exchange ranks workers

	Secrets tenant.SecretView // stores the secrets of apps
	Keys    func() *seal.Keys // returns the keys that encrypt secrets, from which the workers' keys are derived; nil: secrets cannot be set through this broker
	Writer  seal.Writer       // identifies this broker in the versions of secrets

	Orders throttle.OrderLimits // limits on concurrent orders
	Quotas lookup.Quotas
}

// Broker serves the public API. Create one with [New].
type Broker struct {
	handler  http.Handler
	ready    func() error
	failover *failover
}

// New creates a broker. It starts no goroutines.
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
	config.Timeout = cmp.Or(config.Timeout, 2*time.Second)
	config.Region = cmp.Or(config.Region, "local")
	if config.Members == nil {
		config.Members = config.Directory.Workers
	}
	if config.Copies == nil {
		config.Copies = lookup.Asking(config.Workers, &fabric.AppList, "")
	}
	s, routes, others := compose(&config)
	config.Counts.Watch(s.Gate.Turns.Load)
	return &Broker{s.Routed(routes), s.Ready, others}
}

// compose creates the handler for each kind of API object. It returns the server, its routes, and the failover
// component, which orders machines for proxies.
func compose(c *Config) (*endpoint.Server, []endpoint.Route, *failover) {
	sources := lookup.Sources{View: c.View, Directory: c.Directory, Workers: c.Workers, Timeout: c.Timeout, Now: c.Now, Log: c.Log}
	machines, volumes := lookup.NewMachines(sources), lookup.NewVolumes(sources)
	store, quotas := lookup.NewApps(sources, c.Copies), lookup.NewChecker(c.Quotas, machines)
	g := &endpoint.Gate{Tokens: c.Tokens, Certified: c.Certified, Apps: store, Quota: quotas, Turns: throttle.NewOrderLimiter(c.Orders)}
	sealed := tenant.NewSecrets(tenant.SecretsConfig{
		View: c.Secrets, Apps: store, Keys: c.Keys, Writer: c.Writer, MayHave: quotas.MayHaveSecrets, Now: c.Now, Timeout: c.Timeout,
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
		(&memberHandler{c, machines}).routes(),
		(&policyHandler{c}).routes(),
		(&rotationHandler{c}).routes(),
		(&viewHandler{c, machines, volumes}).routes(),
		(&joinTokenHandler{c}).routes(),
		(&platformHandler{c}).routes(),
		(&tenant.Placements{Gate: g, Directory: c.Directory, Workers: c.Workers, Region: c.Region, Timeout: min(c.Timeout, readTimeout)}).Routes(),
		(&tenant.OrgMachines{Apps: store, Machines: machines}).Routes(),
		(&tenant.Addresses{Apps: store}).Routes(),
		(&tenant.Unsupported{Apps: store}).Routes(),
		(&tenant.Proxies{Apps: store, Proxies: c.proxies, Fabric: c.Workers, Timeout: c.Timeout}).Routes(),
		(&tenant.Tokens{Issued: c.Issued, Gate: g, Machines: machines, Now: c.Now}).Routes(),
		(&tenant.WireGuard{View: c.WireGuard, Gate: g, Apps: store, Now: c.Now}).Routes(),
	)
	server := &endpoint.Server{Gate: g, Ready: known, Unsupported: openapi.Unsupported(), Counts: c.Counts, Region: c.Region, Now: c.Now, Log: c.Log}
	return server, append(routes, openapi.Route(routes, c.Version)), others
}

// OrderFailover orders a copy of a machine on behalf of a proxy. original is the ID of the machine to copy. Errors:
// not_found; failed_precondition if the machine must not be copied; rate_limited; unavailable if the broker does not
// know its cluster yet; and those of Exchange.Place.
func (b *Broker) OrderFailover(ctx context.Context, original bourse.MachineID) (fabric.FailoverOrder, error) {
	if err := b.ready(); err != nil {
		return fabric.FailoverOrder{}, err
	}
	return b.failover.order(ctx, original)
}

// FailoverHandler returns the handler for fabric.FailoverPath. It does not authenticate the caller.
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

// Handler returns the handler of the public API.
func (b *Broker) Handler() http.Handler { return b.handler }
