package endpoint

import (
	"context"
	"crypto/subtle"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// TokenView stores the tokens created by brokers. All brokers share the same tokens. A new token reaches every broker
// shortly after it is stored.
type TokenView interface {
	// Token returns the token with the given ID, or nil if there is none.
	Token(ctx context.Context, id string) (*inventory.Token, error)
	// Tokens returns all tokens, including revoked ones, oldest first.
	Tokens(ctx context.Context) ([]inventory.Token, error)
	// PutToken stores a token. It returns once the token is on this server's disk and, if there are other members, on
	// the disks of some of them. If there are conflicting versions of a token, a revoked one wins.
	PutToken(ctx context.Context, t *inventory.Token) error
}

// Issued identifies the owners of tokens created through the API. It caches tokens, and clears the cache whenever any
// token may have changed.
type Issued struct {
	TokenView
	changed <-chan struct{}
	synced  func() bool
	now     func() time.Time

	mu    sync.Mutex
	reads uint64 // number of times the cache was cleared because tokens may have changed
	known map[string]*inventory.Token
}

// maxKnown is the maximum number of cached tokens. When it is reached, the cache is cleared.
const maxKnown = 1 << 14

// NewIssued returns an Issued with an empty cache. changed must receive a value whenever tokens may
// have changed since the last value was read. synced must report whether the view contains all
// tokens.
func NewIssued(v TokenView, changed <-chan struct{}, synced func() bool, now func() time.Time) *Issued {
	return &Issued{TokenView: v, changed: changed, synced: synced, now: now, known: map[string]*inventory.Token{}}
}

// Identify returns the owner of a token. Errors: unauthorized; unavailable if the token is
// unknown but this broker does not have all tokens yet, because such a token may be valid.
func (s *Issued) Identify(ctx context.Context, token string) (Identity, error) {
	id, digest, ok := Digest(token)
	if !ok {
		return Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "the token does not belong to this cluster")
	}
	t, err := s.find(ctx, id)
	switch {
	case err != nil:
		return Identity{}, bourse.Errorf(bourse.CodeUnavailable, "look up token: %w", err)
	case t == nil && !s.synced():
		return Identity{}, bourse.Errorf(bourse.CodeUnavailable, "this broker does not have all tokens yet: it has just started or cannot reach other servers")
	case t == nil || subtle.ConstantTimeCompare([]byte(t.Digest), []byte(digest)) == 0:
		return Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "unknown token")
	}
	if err := checkValid(t, s.now()); err != nil {
		return Identity{}, err
	}
	return identityOf(t), nil
}

// find returns the token with the given ID, or nil if there is none. The result includes every
// change already signaled through s.changed.
func (s *Issued) find(ctx context.Context, id string) (*inventory.Token, error) {
	s.mu.Lock()
	select {
	case <-s.changed:
		clear(s.known)
		s.reads++
	default:
	}
	t, began := s.known[id], s.reads
	s.mu.Unlock()
	if t != nil {
		return t, nil
	}
	t, err := s.Token(ctx, id)
	if err != nil || t == nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if began == s.reads { // otherwise, t may predate a change that was signaled in the meantime
		if len(s.known) >= maxKnown {
			clear(s.known)
		}
		s.known[id] = t
	}
	return t, nil
}
