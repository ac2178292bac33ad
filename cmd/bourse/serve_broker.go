package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/market"
)

// serveBroker runs an API server until ctx ends. It keeps nothing.
func serveBroker(ctx context.Context, c cli.BrokerConfig) error {
	tokens, err := loadTokens(c.TokenFile)
	if err != nil {
		return err
	}
	if c.Name == "" {
		c.Name = bourse.WorkerID("broker-" + strings.ToLower(rand.Text()[:8]))
	}
	s, err := openServer(&c.ServerConfig, c.Name, bourse.RoleBroker, 0)
	if err != nil {
		return err
	}
	defer func() { _ = s.listener.Close() }() // the API's stage has, if it ran
	var toWorkers, toClients *tls.Config
	if s.creds != nil {
		toWorkers, toClients = s.creds.Client(), s.creds.Public()
	}
	wire := direct.New(toWorkers)
	defer wire.Close()
	workers := fabric.NewClient(wire)
	exchange := market.New(market.Config{Directory: s.members, Trader: workers, Log: s.log})
	api := broker.New(broker.Config{
		Exchange: exchange, Directory: s.members, Workers: workers, Tokens: tokens,
		Log: s.log, Region: c.Region, Version: version().Release,
	})
	return runStages(ctx, s.log,
		s.membership(),
		stage{name: "exchange", run: exchange.Run},
		stage{name: "api", run: func(ctx context.Context) error {
			return direct.Serve(ctx, s.listener, api.Handler(), toClients, s.log)
		}},
		s.announce(),
	)
}

// tokens are the clients' tokens as the broker asks for them.
type tokens struct{ set *admission.TokenSet }

// loadTokens reads the token file; without one the broker asks for none.
func loadTokens(path string) (broker.Tokens, error) {
	if path == "" {
		return nil, nil
	}
	set, err := admission.LoadTokens(path)
	if err != nil {
		return nil, err
	}
	return tokens{set}, nil
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
