package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/market"
	"github.com/bourse-dev/bourse/view/query"
)

// serveBroker runs an API server until ctx ends. It keeps nothing.
func serveBroker(ctx context.Context, c cli.BrokerConfig) (err error) {
	set, err := loadTokens(c.TokenFile)
	if err != nil {
		return err
	}
	if c.Name == "" {
		if c.Name, err = brokerName(c.Data); err != nil {
			return err
		}
	}
	quotas, err := loadQuotas(c.Quotas)
	if err != nil {
		return err
	}
	if err := query.BoundMemory(); err != nil { // before anybody opens a view
		return err
	}
	s, err := openServer(ctx, &c.ServerConfig, c.Name, bourse.RoleBroker, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	s.replica.directory.LostAfter(c.LostAfter)
	local, err := s.clientToken(s.listener, c.TokenFile)
	if err != nil {
		return err
	}
	if local != nil {
		if set, err = admission.OneToken(local.Text); err != nil {
			return err
		}
		s.extra = func(r *cli.Ready) { r.TokenFile = local.File }
	}
	var asked broker.Tokens // nil: none are asked for
	if set != nil {
		asked = tokens{set}
		s.watched = append(s.watched, set)
	}
	var toClients *tls.Config
	if s.creds != nil {
		toClients = s.creds.Public()
	}
	engine, err := query.New(query.Config{Source: query.Of(s.replica.View), Log: s.log})
	if err != nil {
		return err
	}
	workers, known := fabric.NewClient(s.fabric()), brokerView{s.replica}
	exchange := market.New(market.Config{Directory: s.replica.directory, Trader: broker.Granting{Client: workers, Directory: s.replica.directory}, Voids: known, Log: s.log})
	api := broker.New(broker.Config{
		Exchange: exchange, Directory: s.replica.directory, Workers: provenApps{workers, s.replica}, Tokens: asked,
		View: known, Queries: queries{engine, s.replica.replicator},
		Log: s.log, Region: c.Region, Version: version().Release,
		Orders: throttle.TurnsConfig{AtOnce: c.Orders}, Quotas: quotas,
	})
	return runStages(ctx, s.log,
		s.watching(),
		s.viewing(),
		s.membership(),
		s.replication(),
		s.directing(),
		stage{name: "exchange", run: exchange.Run},
		stage{name: "api", run: func(ctx context.Context) error {
			return s.serve(ctx, s.listener, s.withReplication(api.Handler()), toClients)
		}},
		withdraw(local),
		stage{name: "nats", run: s.serveLink},
		stage{name: "queries", run: engine.Run}, // ends before the API: who follows the view lets go
		s.announce(),
	)
}

// brokerName gives the name of a broker that was given none: a new one, or the
// one that its data directory remembers, so that the view there stays its own.
func brokerName(data string) (bourse.WorkerID, error) {
	name := bourse.WorkerID("broker-" + strings.ToLower(rand.Text()[:8]))
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

// loadQuotas reads the file of quotas; without one the defaults hold.
func loadQuotas(path string) (broker.Quotas, error) {
	if path == "" {
		return broker.Quotas{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return broker.Quotas{}, bourse.Errorf(bourse.CodeInvalid, "--quotas: %w", err)
	}
	q, err := broker.ReadQuotas(text)
	if err != nil {
		return q, bourse.Errorf(bourse.CodeInvalid, "--quotas %s: %w", path, err)
	}
	return q, nil
}

// tokens are the clients' tokens as the broker asks for them.
type tokens struct{ set *admission.TokenSet }

// loadTokens reads the token file; without one the broker asks for none.
func loadTokens(path string) (*admission.TokenSet, error) {
	if path == "" {
		return nil, nil
	}
	return admission.LoadTokens(path)
}

// Identify gives the owner of a token.
func (t tokens) Identify(_ context.Context, token string) (broker.Identity, error) {
	scope, ok := t.set.Lookup(token)
	if !ok {
		return broker.Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "the token is not known here")
	}
	if scope.Cluster {
		return broker.Identity{Name: "*"}, nil // as it is written in the file; no organisation has that name
	}
	who := broker.Identity{Name: scope.Org, Org: scope.Org}
	if scope.App != "" {
		who.Apps = []bourse.AppName{scope.App}
	}
	return who, nil
}
