package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/flycompat"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
	servermetrics "github.com/bourse-dev/bourse/internal/metrics"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/market"
	"github.com/bourse-dev/bourse/view/query"
	"github.com/bourse-dev/bourse/view/wire"
)

// serveBroker runs a broker until ctx is done.
func serveBroker(ctx context.Context, c serve.BrokerConfig) (err error) {
	set, err := loadTokens(c.Credentials.Tokens)
	if err != nil {
		return err
	}
	if c.Name == "" {
		if c.Name, err = nameIn(c.Data, bourse.RoleBroker); err != nil {
			return err
		}
	}
	quotas, err := loadQuotas(c.Quotas)
	if err != nil {
		return err
	}
	if err := query.BoundMemory(); err != nil { // must be called before any view is opened
		return err
	}
	s, err := openServer(ctx, &c.ServerConfig, c.Name, bourse.RoleBroker, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	s.replica.directory.LostAfter(c.LostAfter)
	required, local, err := s.clientTokens(set, c.Credentials.Tokens)
	if err != nil {
		return err
	}
	defer required.close()
	var toClients *tls.Config
	if s.creds != nil {
		toClients = s.creds.Public()
	}
	keys, err := s.openKeys(c.Credentials.SecretsKey)
	if err != nil {
		return err
	}
	desk, err := s.openDesk(&c)
	if err != nil {
		return err
	}
	counts := endpoint.NewCounts()
	engine, err := query.New(query.Config{Source: query.Of(s.replica.View), Log: s.log})
	if err != nil {
		return err
	}
	workers, known := s.fabric(), s.replica
	var trader market.Trader = fabric.GrantingTrader{Trader: fabric.Trader{Fabric: workers}, Directory: s.replica.directory}
	if placements := s.replica.Placements(); placements != nil {
		workers = fabric.VerifyingFabric{Fabric: workers, Placements: placements}
		trader = fabric.PlacingTrader{
			GrantingTrader: fabric.GrantingTrader{Trader: fabric.Trader{Fabric: workers}, Directory: s.replica.directory},
			Placements:     placements,
		}
	}
	policies := broker.NewPolicies(known, s.log)
	exchange := market.New(market.Config{
		Directory: s.replica.directory, Trader: trader, Cancellations: known, Log: s.log,
		OnDecision: counts.Decided, Policies: policies.Current, Name: string(c.Name),
	})
	config := broker.Config{
		Exchange: exchange, Policies: policies, Directory: s.replica.directory, Workers: workers, Copies: s.provenApps(workers), Certified: scraperOf,
		Counts: counts, Metrics: servermetrics.Handler(counts, s.metrics()),
		View: known, Queries: engine, Health: known.Replicator.Health,
		Log: s.log, Region: c.Region, Version: version().Release,
		Members: s.members, Self: s.self.ID, LockOut: s.creds != nil,
		Releases: known, WireGuard: known, Secrets: known, Keys: keys, Writer: seal.WriterOf(c.Name),
		Orders: throttle.OrderLimits{Concurrency: c.Orders}, Quotas: quotas,
	}
	s.openRotations()
	if s.creds != nil {
		config.Rotate = s.rotate
	}
	if required != nil {
		config.Tokens, config.Issued = required, required.issued
	}
	if desk != nil {
		config.Invitations = invitations{desk.Ledger, desk, s.directAddress()}
	}
	api := broker.New(config)
	s.orders = direct.Handler(s.self.ID, admission.Require(s.tracer.Handler(api.FailoverHandler()), bourse.RoleProxy))
	return runStages(ctx, s.log,
		s.watchStage(),
		s.renewal(),
		s.viewStage(),
		s.lockOut(),
		s.membership(),
		s.replication(),
		s.directoryStage(),
		s.recordStage(),
		s.policyStage(policies),
		stage{name: "exchange", run: exchange.Run},
		stage{name: "api", run: func(ctx context.Context) error {
			return s.serve(ctx, s.listener, s.withReplication(s.withDesk(s.tracer.Handler(flycompat.Handler(api.Handler())), desk)), toClients)
		}},
		tokenStage(local),
		stage{name: "nats", run: func(ctx context.Context) error { return s.serveLink(ctx, s.withDesk(http.NotFoundHandler(), desk)) }},
		stage{name: "queries", run: engine.Run}, // stops before the API, so that requests that follow the view end first
		s.announce(),
	)
}

// policyStage returns the stage that keeps the exchange's policies up to date.
func (s *server) policyStage(p *broker.Policies) stage {
	return stage{name: "policies", run: func(ctx context.Context) error {
		watcher := s.replica.Watch(wire.TablePolicies)
		defer watcher.Stop()
		return p.Run(ctx, watcher.C)
	}}
}

// provenApps returns a function that fetches a worker's copies of apps. In a cluster with certificates, the function
// returns only apps that a broker signed.
func (s *server) provenApps(workers fabric.Fabric) func(context.Context, bourse.Member) ([]bourse.App, error) {
	return func(ctx context.Context, worker bourse.Member) ([]bourse.App, error) {
		reported, err := fabric.AppList.Call(ctx, workers, worker, "")
		if err != nil || s.creds == nil {
			return reported, err
		}
		return s.replica.MergeAppProofs(ctx, reported)
	}
}

// clientTokens returns the tokens that clients must present: those in set, or a token that a broker on loopback
// creates. required is nil if clients need no token. local is the created token, or nil.
func (s *server) clientTokens(set *admission.TokenSet, file string) (required *tokens, local *loopback.Token, err error) {
	if local, err = s.clientToken(s.listener, file); err != nil {
		return nil, nil, err
	}
	name := endpoint.Everything // the same name as in a token file; no organization can have it
	if local != nil {
		name = endpoint.LocalIdentity.Name
		if set, err = admission.OneToken(local.Text); err != nil {
			return nil, nil, err
		}
		s.extra = func(r *serve.Ready) { r.TokenFile = local.File }
	}
	if set == nil {
		return nil, local, nil
	}
	s.watched = append(s.watched, set)
	return s.newTokens(set, name), local, nil
}

// nameIn returns a name for a server without a configured name. It returns the name that is stored in the data
// directory, because the view there belongs to this name. If no name is stored, it stores and returns a new one.
func nameIn(data string, role bourse.Role) (bourse.WorkerID, error) {
	name := bourse.WorkerID(string(role) + "-" + strings.ToLower(rand.Text()[:8]))
	if data == "" {
		return name, nil
	}
	path := filepath.Join(data, "name")
	text, err := os.ReadFile(path)
	if known := bourse.WorkerID(strings.TrimSpace(string(text))); err == nil && known.Validate() == nil {
		return known, nil
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "--data: %w", err)
	}
	if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
		return "", bourse.Errorf(bourse.CodeInvalid, "--data: %w", err)
	}
	return name, nil
}

// loadQuotas reads the quota file. If path is "", the defaults apply.
func loadQuotas(path string) (lookup.Quotas, error) {
	if path == "" {
		return lookup.Quotas{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return lookup.Quotas{}, bourse.Errorf(bourse.CodeInvalid, "--quotas: %w", err)
	}
	q, err := lookup.Read(text)
	if err != nil {
		return q, bourse.Errorf(bourse.CodeInvalid, "--quotas %s: %w", path, err)
	}
	return q, nil
}

// loadTokens reads the token file. If path is "", it returns nil.
func loadTokens(path string) (*admission.TokenSet, error) {
	if path == "" {
		return nil, nil
	}
	return admission.LoadTokens(path)
}
