package main

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// tokens are the clients' tokens as the broker asks for them: those of a file, and
// those that brokers have made.
type tokens struct {
	set    *admission.TokenSet
	name   string // of the set's tokens for the whole cluster
	issued *endpoint.Issued
	grants grants
}

var _ endpoint.Tokens = (*tokens)(nil)

func (s *server) newTokens(set *admission.TokenSet, name string) *tokens {
	kept := grants{brokerView{s.replica}, s.replica.Watch(wire.TableTokens)}
	return &tokens{set, name, endpoint.NewIssued(kept, time.Now), kept}
}

// close ends what newTokens began; of nil there is nothing.
func (t *tokens) close() {
	if t != nil {
		t.grants.watcher.Stop()
	}
}

// Identify returns the owner of a token.
func (t *tokens) Identify(ctx context.Context, token string) (endpoint.Identity, error) {
	scope, ok := t.set.Lookup(token)
	switch {
	case !ok:
		return t.issued.Identify(ctx, token)
	case scope.Scraper:
		return endpoint.Identity{Name: "scraper", Scraper: true}, nil
	case scope.Cluster:
		return endpoint.Identity{Name: t.name}, nil
	}
	who := endpoint.Identity{Name: scope.Org, Org: scope.Org}
	if scope.App != "" {
		who.Apps = []bourse.AppRef{{Name: scope.App}}
	}
	return who, nil
}

// grants keeps tokens in the view.
type grants struct {
	view    brokerView
	watcher *view.Watcher
}

var _ endpoint.Grants = grants{}

// Find implements endpoint.Grants.
func (g grants) Find(ctx context.Context, id string) (endpoint.Grant, bool, error) {
	t, err := view.Ask(ctx, g.view.View, inventory.TokenByID(id))
	if err != nil || t == nil {
		return endpoint.Grant{}, false, err
	}
	return endpoint.Grant(*t), true, nil
}

// All implements endpoint.Grants.
func (g grants) All(ctx context.Context) ([]endpoint.Grant, error) {
	list, err := view.Ask(ctx, g.view.View, inventory.Tokens())
	out := make([]endpoint.Grant, len(list))
	for i := range list {
		out[i] = endpoint.Grant(list[i])
	}
	return out, err
}

// Put implements endpoint.Grants.
func (g grants) Put(ctx context.Context, grant endpoint.Grant) error {
	t := inventory.Token(grant)
	return g.view.write(ctx, inventory.TokenRow(&t))
}

// Changed implements endpoint.Grants.
func (g grants) Changed() <-chan struct{} { return g.watcher.C }

// Synced implements endpoint.Grants: a broker that is alone does not know what others
// have made.
func (g grants) Synced() bool { return g.view.Synced() && g.view.directory.Knows() }
