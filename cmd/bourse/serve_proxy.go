package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
	servermetrics "github.com/bourse-dev/bourse/internal/metrics"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/proxy"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/edge"
	"github.com/bourse-dev/bourse/proxy/replay"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/proxy/upstream"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// proxyServer contains the parts of a proxy.
type proxyServer struct {
	*server
	config    *serve.ProxyConfig
	routes    *route.Follower
	upstreams *upstream.Pool
	balance   balanceOf
	proxy     *proxy.Proxy
	counts    *proxy.Counts
	edge      edge.Config
	shares    shares
}

// serveProxy runs a proxy until ctx is done. It reads the cluster's state from its
// view, and never writes to the view.
func serveProxy(ctx context.Context, c serve.ProxyConfig) (err error) {
	if c.Name == "" {
		if c.Name, err = nameIn(c.Data, bourse.RoleProxy); err != nil {
			return err
		}
	}
	s, err := openServer(ctx, &c.ServerConfig, c.Name, bourse.RoleProxy, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	p := &proxyServer{server: s, config: &c}
	p.upstreams = upstream.New(upstream.Config{Fabric: s.fabric(), Directory: s.replica.directory, Self: c.Name, Host: loopback.HostID(), Log: s.log})
	shares, err := descriptorShares()
	if err != nil {
		return err
	}
	balancer := balance.New(balance.Config{Region: c.Region, Others: p.upstreams.Others, MaxWaitingPerApp: min(2048, shares.waiting)})
	p.balance = balanceOf{balancer}
	var serving inventory.Serving
	p.routes = route.NewFollower(route.FollowerConfig{
		Read: func(ctx context.Context) (out route.Snapshot, err error) {
			if out.Machines, err = view.Query(ctx, s.replica.View, serving.Read); err == nil {
				out.Apps, err = s.replica.Apps(ctx)
			}
			return out, err
		},
		Complete: s.replica.InSync,
		ReachableWorker: func(tag bourse.WorkerTag) (bourse.WorkerID, bool) {
			m, ok := s.replica.directory.ByTag(tag)
			return m.ID, ok
		},
		Members: s.changed,
		Domains: c.Domains, Hosts: c.Hosts, Changed: balancer.Update, Log: s.log,
	})
	p.counts = proxy.NewCounts(string(c.Region))
	spools, err := replay.OpenSpools("", replay.Limits{OpenFiles: shares.spools}, s.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spools.Close()) }()
	p.proxy = proxy.New(proxy.Config{
		Orders: proxy.BrokerOrders{Fabric: s.fabric(), Members: s.members, ByTag: s.replica.directory.ByTag}, Replays: &proxy.Replays{Apps: p.routes, Spools: spools},
		Metrics: p.counts, Tracer: s.tracer, Routes: p.routes, Balance: p.balance, Upstreams: upstreamPool{p.upstreams}, Region: c.Region, Trusted: c.Trusted, HoldUpgraded: c.HoldOpen, Log: s.log,
		Limits: proxy.Limits{MaxWaiting: min(10_000, shares.waiting)}, Conns: shares.machines,
	})
	p.shares = shares
	defer p.closeListeners()
	if err := p.listen(); err != nil {
		return err
	}
	s.extra = p.addAddresses
	return runStages(ctx, s.log,
		s.watchStage(),
		s.renewal(),
		s.viewStage(),
		s.lockOut(),
		s.membership(),
		s.replication(),
		s.directoryStage(),
		stage{name: "routes", run: func(ctx context.Context) error {
			watcher := s.replica.Watch(wire.TableMachines, wire.TableApps)
			defer watcher.Stop()
			return p.routes.Run(ctx, watcher.C)
		}},
		stage{name: "upstreams", run: p.upstreams.Run},
		stage{name: "api", run: p.serveAPI},
		stage{name: "nats", run: func(ctx context.Context) error { return s.serveLink(ctx, p.own()) }},
		stage{name: "edge", run: edge.New(p.edge).Run}, // stops first, so that requests finish before the connections to machines close
		s.announce(),
	)
}

// listen opens the listeners for the apps' users.
func (p *proxyServer) listen() error {
	c := p.config
	p.edge = edge.Config{
		Routes: p.routes, Balance: p.balance, Upstreams: upstreamPool{p.upstreams}, HoldOpen: c.HoldOpen, LoadBalancers: c.LoadBalancers,
		Limits: edge.Limits{Connections: c.MaxConnections, Drain: c.Drain}, Log: p.log, Clients: p.shares.clients, Conns: p.shares.machines,
	}
	for _, x := range c.TCP {
		l, err := listen("--tcp", x.Addr)
		if err != nil {
			return err
		}
		p.edge.Streams = append(p.edge.Streams, edge.Stream{Listener: l, App: x.App, Port: x.Port})
	}
	https := 0
	for _, x := range c.HTTPS {
		w, err := p.listenWeb("--https", x, true)
		if err != nil {
			return err
		}
		p.edge.Web = append(p.edge.Web, w)
		if at := portOf(w); https == 0 || x.Port == 443 {
			https = at
		}
	}
	secure := len(p.edge.Web)
	for _, x := range c.HTTP {
		w, err := p.listenWeb("--http", x, false)
		if err != nil {
			return err
		}
		p.edge.Web = append(p.edge.Web, w)
	}
	if err := p.openCertificates(secure); err != nil {
		return err
	}
	for i := range p.edge.Web {
		w := &p.edge.Web[i]
		h := p.proxy.Handler(proxy.Listener{Port: w.Port, TLS: w.TLS, HTTPSPort: https})
		if acme := p.edge.Certificates.ACME; acme != nil && !w.TLS {
			h = acme.Handler(h)
		}
		w.Server = proxy.NewServer(h, p.log)
	}
	return nil
}

func portOf(l net.Listener) int { return int(l.Addr().(*net.TCPAddr).AddrPort().Port()) }

func (p *proxyServer) listenWeb(flag string, at serve.WebListen, secure bool) (edge.Web, error) {
	l, err := listen(flag, at.Addr)
	if err != nil {
		return edge.Web{}, err
	}
	w := edge.Web{Listener: l, Port: at.Port, TLS: secure}
	if at.Port == 0 {
		w.Port = portOf(l)
		first := 80
		if secure {
			first = 443
		}
		p.routes.ListenAny(w.Port, first)
	}
	return w, nil
}

// openCertificates opens the source of certificates for host names. secure is the
// number of HTTPS listeners, which precede the HTTP listeners.
func (p *proxyServer) openCertificates(secure int) error {
	c := &p.config.Certs
	certs := &edge.Certificates{SelfSigned: c.SelfSigned}
	p.edge.Certificates = certs
	if c.Dir != "" {
		var err error
		if certs.Files, err = edge.OpenFiles(c.Dir); err != nil {
			return err
		}
		if len(certs.Files.Files()) == 0 {
			p.log.Warn("no certificates found", "dir", c.Dir, "wanted", "NAME.pem with NAME.key, or NAME/fullchain.pem with NAME/privkey.pem")
		}
		p.watched = append(p.watched, certs.Files)
	}
	if c.Email == "" {
		return nil
	}
	at, err := netip.ParseAddrPort(p.edge.Web[secure].Addr().String())
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "--acme: %w", err)
	}
	certs.ACME = edge.NewACME(edge.ACMEConfig{
		Email: c.Email, CA: c.CA, Storage: filepath.Join(p.config.Data, "acme"), HTTP: at, Log: p.log,
		Allowed: func(name string) error {
			_, err := p.routes.Table().FindAny(name, 443)
			return err
		},
	})
	return nil
}

// closeListeners closes the listeners. If the edge stage has run, they are already
// closed.
func (p *proxyServer) closeListeners() {
	for _, w := range p.edge.Web {
		_ = w.Close()
	}
	for _, s := range p.edge.Streams {
		_ = s.Close()
	}
	p.proxy.Close()
}

// addAddresses adds the addresses of the proxy's listeners to the ready message.
func (p *proxyServer) addAddresses(r *serve.Ready) {
	for _, w := range p.edge.Web {
		if w.TLS {
			r.HTTPS = append(r.HTTPS, w.Addr().String())
		} else {
			r.HTTP = append(r.HTTP, w.Addr().String())
		}
	}
	for _, s := range p.edge.Streams {
		r.TCP = append(r.TCP, s.Addr().String())
	}
}

// serveAPI serves the proxy's own API, which metrics scrapers and the cluster's other servers
// use. The apps' users connect to other listeners.
func (p *proxyServer) serveAPI(ctx context.Context) error {
	var secure *tls.Config
	if p.creds != nil {
		secure = p.creds.Server(append(bourse.ServerRoles(), bourse.RoleScraper)...)
	}
	return p.serve(ctx, p.listener, p.withReplication(p.own()), secure)
}

// own returns the handler for the proxy's own metrics and status.
func (p *proxyServer) own() http.Handler {
	mux := http.NewServeMux()
	figures := servermetrics.Handler(p.counts, p.metrics())
	mux.Handle("GET "+endpoint.ProxyMetricsPath, admission.Require(direct.Handler(p.self.ID, figures), bourse.RoleBroker, bourse.RoleScraper))
	status := p.edge.StatusHandler(p.balance.Balancer, p.routes)
	mux.Handle("GET "+tenant.ProxyStatusPath, admission.Require(direct.Handler(p.self.ID, status), bourse.RoleBroker))
	return mux
}

// balanceOf adapts a balancer to proxy.Balance.
type balanceOf struct{ *balance.Balancer }

var _ proxy.Balance = balanceOf{}

// Acquire implements proxy.Balance.
func (b balanceOf) Acquire(ctx context.Context, t *route.Target, w proxy.Criteria) (proxy.Slot, error) {
	slot, err := b.Balancer.Acquire(ctx, t, w)
	if err != nil {
		return nil, err
	}
	return slot, nil
}

// upstreamPool adapts an upstream.Pool to proxy.Upstreams.
type upstreamPool struct{ *upstream.Pool }

var _ proxy.Upstreams = upstreamPool{}

// Use implements proxy.Upstreams.
func (u upstreamPool) Use(ctx context.Context, worker bourse.WorkerID, machine bourse.MachineID, port int, start bool) (proxy.Upstream, error) {
	to, err := u.Pool.Use(ctx, worker, machine, port, start)
	if err != nil {
		return nil, err
	}
	return to, nil
}

// shares divides a proxy's file descriptors: half are for clients, a quarter for
// machines, and a sixteenth for stored request bodies. The rest are for the proxy's own
// files and its connections to the cluster.
type shares struct {
	clients  *throttle.FairBudget // connections from clients, by their address
	machines *throttle.FairBudget // connections to machines, by organization
	spools   int64
	// waiting limits how many of one app's requests may wait for a slot on a machine. A separate
	// limit of the same size applies to requests that wait for a machine to become ready. The
	// limits are low enough that one app's requests cannot use up all client connections.
	waiting int
}

// descriptorShares divides the number of file descriptors that this process may open.
func descriptorShares() (shares, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil { // the Go runtime has raised the limit to the hard limit
		return shares{}, fmt.Errorf("read the open file limit: %w", err)
	}
	n := int64(min(uint64(limit.Cur), math.MaxInt32)) //nolint:gosec // it fits
	return shares{clients: throttle.NewFairBudget(n / 2), machines: throttle.NewFairBudget(n / 4), spools: max(n/16, 1), waiting: int(max(n/8, 1))}, nil
}
