package main

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/wire"
	"github.com/bourse-dev/bourse/worker/machines"
)

// proofs proves this server's identity, and verifies the identities of members, with the cluster's
// certificates.
type proofs struct {
	creds  *admission.Credentials
	fabric *direct.Fabric
}

var _ gossip.Proofs = proofs{}

// Sign implements gossip.Proofs.
func (p proofs) Sign(statement []byte) ([]byte, error) { return p.creds.Sign(statement) }

// Key implements gossip.Proofs.
func (p proofs) Key(ctx context.Context, m bourse.Member) (gossip.Key, error) {
	cert, err := p.fabric.Certificate(ctx, m)
	if err != nil {
		return nil, err
	}
	return certified{cert}, nil
}

// Names implements gossip.Proofs.
func (p proofs) Names(ctx context.Context, m bourse.Member) ([]string, error) {
	resp, err := p.fabric.Call(ctx, m, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: gossip.PathSelf}, Header: http.Header{}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	self, err := gossip.ReadSelf(resp)
	return self.Names, err
}

// certified implements gossip.Key with a member's certificate.
type certified struct{ cert *x509.Certificate }

// Verify implements gossip.Key.
func (c certified) Verify(statement, signature []byte) bool {
	return admission.Verify(c.cert, statement, signature)
}

// HasTag implements gossip.Key.
func (c certified) HasTag(tag bourse.WorkerTag) bool { return admission.HasTag(c.cert, tag) }

// renewing reloads a server's credentials when their files change, and announces the
// change to the other members.
type renewing struct{ *server }

// Files implements admission.Watched.
func (r renewing) Files() []string { return r.creds.Files() }

// Look implements admission.Watched.
func (r renewing) Look() (bool, error) {
	changed, err := r.creds.Look()
	if changed {
		r.wire.Renew()
		for _, group := range r.groups {
			group.Renew()
		}
	}
	return changed, err
}

// ownTag returns CodeFailedPrecondition if this server is a worker whose tag the other
// members would reject.
func (s *server) ownTag() error {
	tag := s.self.Tag
	if s.creds == nil || tag == 0 || s.self.ID.TagRank(tag) < bourse.TagChoices || s.creds.HasTag(tag) {
		return nil
	}
	return bourse.Errorf(bourse.CodeFailedPrecondition, "tag %s of this worker is not derived from its name: add the DNS name %s to its certificate", tag, admission.TagName(tag))
}

// tokens identifies clients by the tokens in a file, and by the tokens that brokers
// have issued.
type tokens struct {
	set     *admission.TokenSet
	name    string // name of the clients whose token in set permits everything
	issued  *endpoint.Issued
	watcher *view.Watcher
}

var _ endpoint.Tokens = (*tokens)(nil)

func (s *server) newTokens(set *admission.TokenSet, name string) *tokens {
	watcher := s.replica.Watch(wire.TableTokens)
	synced := func() bool { return s.replica.InSync() && s.replica.directory.Knows() } // until then, tokens that other brokers have issued may be missing
	return &tokens{set, name, endpoint.NewIssued(s.replica, watcher.C, synced, time.Now), watcher}
}

// close stops watching the view. t may be nil.
func (t *tokens) close() {
	if t != nil {
		t.watcher.Stop()
	}
}

// Identify implements endpoint.Tokens.
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

// workerSecrets gives a worker access to the secrets in the view.
type workerSecrets struct {
	*replica
	server *server
}

var _ machines.SecretsView = workerSecrets{}

// AwaitSynced implements machines.SecretsView. It gives up waiting if the cluster has no other
// servers.
func (v workerSecrets) AwaitSynced(ctx context.Context) {
	if v.InSync() {
		return
	}
	select {
	case <-v.server.contacted():
	case <-time.After(joinTimeout):
	case <-ctx.Done():
	}
	tick := time.NewTicker(syncedInterval)
	defer tick.Stop()
	for !v.InSync() && len(v.server.members()) > 1 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// syncedInterval is the interval at which AwaitSynced checks whether the view has been
// compared with another server's.
const syncedInterval = 10 * time.Millisecond

// openKeys reads the file that contains the broker's secrets keys, and reloads it when it changes.
// It returns nil if no file is configured.
func (s *server) openKeys(file string) (func() *seal.Keys, error) {
	if file == "" {
		return nil, nil
	}
	live, err := admission.NewLive([]string{file}, func() (*seal.Keys, error) { return seal.Load(file) }, nil)
	if err != nil {
		return nil, err
	}
	s.watched = append(s.watched, live)
	s.secretsKeys = live.Get
	s.shareSecretsKeys(live)
	return live.Get, nil
}
