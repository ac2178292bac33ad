package main

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/wire"
)

// tokens are the clients' tokens as the broker asks for them: those of a file, and
// those that brokers have made.
type tokens struct {
	set     *admission.TokenSet
	name    string // of the set's tokens for the whole cluster
	issued  *endpoint.Issued
	watcher *view.Watcher
}

var _ endpoint.Tokens = (*tokens)(nil)

func (s *server) newTokens(set *admission.TokenSet, name string) *tokens {
	watcher := s.replica.Watch(wire.TableTokens)
	synced := func() bool { return s.replica.InSync() && s.replica.directory.Knows() } // alone it does not know what others have made
	return &tokens{set, name, endpoint.NewIssued(s.replica, watcher.C, synced, time.Now), watcher}
}

// close ends what newTokens began; of nil there is nothing.
func (t *tokens) close() {
	if t != nil {
		t.watcher.Stop()
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
