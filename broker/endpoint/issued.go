package endpoint

import (
	"context"
	"crypto/subtle"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// TokenView stores the tokens that brokers have made. All brokers have the same tokens,
// a moment after one of them has written it.
type TokenView interface {
	// Token finds a token by its id. It returns nil if there is none.
	Token(ctx context.Context, id string) (*inventory.Token, error)
	// Tokens returns all, those that were revoked too, the oldest first.
	Tokens(ctx context.Context) ([]inventory.Token, error)
	// PutToken writes one. It returns once that is on this server's disk and some other
	// members have it, if there are any. Of two versions a revoked one stands.
	PutToken(ctx context.Context, t *inventory.Token) error
}

// Issued identifies the tokens that were made by the API. It remembers what it has
// read until something changes.
type Issued struct {
	TokenView
	changed <-chan struct{}
	synced  func() bool
	now     func() time.Time

	mu    sync.Mutex
	reads uint64 // how often what was remembered has been forgotten
	known map[string]*inventory.Token
}

// maxKnown bounds what is remembered; past it the memory starts again.
const maxKnown = 1 << 14

// NewIssued makes an Issued that remembers nothing. changed has an element when tokens
// may have changed since the last receive; synced reports whether all tokens are in the
// view.
func NewIssued(v TokenView, changed <-chan struct{}, synced func() bool, now func() time.Time) *Issued {
	return &Issued{TokenView: v, changed: changed, synced: synced, now: now, known: map[string]*inventory.Token{}}
}

// Identify returns the owner of a token. Codes: unauthorized, unavailable (the token
// is not known here, and this broker does not know all of them yet: unknown is never
// told as no).
func (s *Issued) Identify(ctx context.Context, token string) (Identity, error) {
	id, digest, ok := Digest(token)
	if !ok {
		return Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "it is no token of this cluster")
	}
	t, err := s.find(ctx, id)
	switch {
	case err != nil:
		return Identity{}, bourse.Errorf(bourse.CodeUnavailable, "look for a token: %w", err)
	case t == nil && !s.synced():
		return Identity{}, bourse.Errorf(bourse.CodeUnavailable, "this broker does not know all tokens yet: it has just started, or reaches no other server")
	case t == nil || subtle.ConstantTimeCompare([]byte(t.Digest), []byte(digest)) == 0:
		return Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "the token is not known here")
	}
	if err := good(t, s.now()); err != nil {
		return Identity{}, err
	}
	return identityOf(t), nil
}

// find returns a token as it was read after the last change, nil if there is none.
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
	if began == s.reads { // else it may be what stood before the change
		if len(s.known) >= maxKnown {
			clear(s.known)
		}
		s.known[id] = t
	}
	return t, nil
}
