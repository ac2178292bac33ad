package endpoint

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Grants keeps what is known of the tokens that were made. All brokers have the same,
// a moment after one of them has written it.
type Grants interface {
	// Find finds one by its id.
	Find(ctx context.Context, id string) (Grant, bool, error)
	// All returns all, those that were revoked too, the oldest first.
	All(ctx context.Context) ([]Grant, error)
	// Put writes one. It returns once that is on this server's disk and some other
	// members have it, if there are any. Of two versions a revoked one stands.
	Put(ctx context.Context, g Grant) error
	// Changed has an element when grants may have changed since the last receive.
	Changed() <-chan struct{}
	// Synced reports whether the grants have been compared with another member's.
	Synced() bool
}

// Issued identifies the tokens that were made by the API. It remembers what it has
// read until something changes.
type Issued struct {
	Grants
	now func() time.Time

	mu    sync.Mutex
	reads uint64 // how often what was remembered has been forgotten
	known map[string]Grant
}

// maxKnown bounds what is remembered; past it the memory starts again.
const maxKnown = 1 << 14

// NewIssued makes an Issued that remembers nothing.
func NewIssued(grants Grants, now func() time.Time) *Issued {
	return &Issued{Grants: grants, now: now, known: map[string]Grant{}}
}

// Identify returns the owner of a token. Codes: unauthorized, unavailable (the token
// is not known here, and this broker does not know all of them yet: unknown is never
// told as no).
func (s *Issued) Identify(ctx context.Context, token string) (Identity, error) {
	id, digest, ok := Digest(token)
	if !ok {
		return Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "it is no token of this cluster")
	}
	g, ok, err := s.find(ctx, id)
	if err != nil {
		return Identity{}, bourse.Errorf(bourse.CodeUnavailable, "look for a token: %w", err)
	}
	if !ok && !s.Synced() {
		return Identity{}, bourse.Errorf(bourse.CodeUnavailable, "this broker does not know all tokens yet: it has just started, or reaches no other server")
	}
	if !ok || !g.is(digest) {
		return Identity{}, bourse.Errorf(bourse.CodeUnauthorized, "the token is not known here")
	}
	if err := g.good(s.now()); err != nil {
		return Identity{}, err
	}
	return g.identity(), nil
}

// find returns a grant as it was read after the last change.
func (s *Issued) find(ctx context.Context, id string) (Grant, bool, error) {
	s.mu.Lock()
	select {
	case <-s.Changed():
		clear(s.known)
		s.reads++
	default:
	}
	g, ok := s.known[id]
	began := s.reads
	s.mu.Unlock()
	if ok {
		return g, true, nil
	}
	g, ok, err := s.Find(ctx, id)
	if err != nil || !ok {
		return g, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if began == s.reads { // else it may be what stood before the change
		if len(s.known) >= maxKnown {
			clear(s.known)
		}
		s.known[id] = g
	}
	return g, true, nil
}
