package endpoint_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/view/inventory"
)

// book is a TokenView in memory.
type book struct {
	mu      sync.Mutex
	byID    map[string]inventory.Token
	changed chan struct{}
	reads   int
	reading func() // called after a token was read from the book, before Token returns it
	err     error
	young   bool // the view does not contain all tokens yet
}

func newBook(grants ...inventory.Token) *book {
	b := &book{byID: map[string]inventory.Token{}, changed: make(chan struct{}, 1)}
	for _, g := range grants {
		b.byID[g.ID] = g
	}
	return b
}

func (b *book) Token(_ context.Context, id string) (*inventory.Token, error) {
	b.mu.Lock()
	g, ok := b.byID[id]
	b.reads++
	reading, err := b.reading, b.err
	b.mu.Unlock()
	if reading != nil {
		reading()
	}
	if !ok || err != nil {
		return nil, err
	}
	return &g, nil
}

func (b *book) Tokens(context.Context) ([]inventory.Token, error) { return nil, b.err }

func (b *book) PutToken(_ context.Context, t *inventory.Token) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byID[t.ID] = *t
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return nil
}

func (b *book) issued(now func() time.Time) *endpoint.Issued {
	return endpoint.NewIssued(b, b.changed, func() bool { return !b.young }, now)
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// issue creates a token with the given permissions.
func issue(g inventory.Token) (string, inventory.Token) {
	token := endpoint.NewToken()
	g.ID, g.Digest, _ = endpoint.Digest(token)
	return token, g
}

func TestIdentify(t *testing.T) {
	const good = bourse.Code("")
	for name, tt := range map[string]struct {
		grant inventory.Token
		at    time.Duration
		want  bourse.Code
	}{
		"good":                 {inventory.Token{Org: "acme"}, 0, good},
		"of everything":        {inventory.Token{Org: "*"}, 0, good},
		"of nothing":           {inventory.Token{}, 0, bourse.CodeUnavailable},
		"unread":               {inventory.Token{Org: "acme", Undecodable: true}, 0, bourse.CodeUnavailable},
		"revoked":              {inventory.Token{Org: "acme", RevokedAt: now}, 0, bourse.CodeUnauthorized},
		"revoked and unread":   {inventory.Token{Org: "acme", RevokedAt: now, Undecodable: true}, 0, bourse.CodeUnauthorized},
		"a moment before":      {inventory.Token{Org: "acme", ExpiresAt: now.Add(time.Hour)}, time.Hour - 1, good},
		"at its end":           {inventory.Token{Org: "acme", ExpiresAt: now.Add(time.Hour)}, time.Hour, bourse.CodeUnauthorized},
		"expired while cached": {inventory.Token{Org: "acme", ExpiresAt: now.Add(time.Hour)}, 2 * time.Hour, bourse.CodeUnauthorized},
	} {
		token, g := issue(tt.grant)
		clock := now
		s := newBook(g).issued(func() time.Time { return clock })
		_, _ = s.Identify(t.Context(), token) // fills the cache
		clock = now.Add(tt.at)
		who, err := s.Identify(t.Context(), token)
		if bourse.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if err == nil && who.Cluster() != (g.Org == endpoint.Everything) {
			t.Errorf("%s: it is %+v", name, who)
		}
	}
}

// TestGarbageIsNoToken checks that strings that are not tokens cause no query, whatever their
// length.
func TestGarbageIsNoToken(t *testing.T) {
	b := newBook()
	s := b.issued(time.Now)
	token := endpoint.NewToken()
	for _, text := range []string{
		"", "bourse_", token[:len(token)-1], token + "a", " " + token, strings.Repeat("a", 1<<20), "bourse_" + strings.Repeat("\xff", 52), "fm2_" + token,
		strings.ToUpper(token), "bourse\x00" + token[7:],
	} {
		if _, err := s.Identify(t.Context(), text); bourse.CodeOf(err) != bourse.CodeUnauthorized {
			t.Errorf("%.20q…: %v", text, err)
		}
	}
	if b.reads != 0 {
		t.Errorf("%d looks", b.reads)
	}
}

// TestIncompleteTokensMeanUnavailable checks that a broker that does not have all tokens, or cannot read them, never
// reports a token as unknown.
func TestIncompleteTokensMeanUnavailable(t *testing.T) {
	token, g := issue(inventory.Token{Org: "acme"})
	b := newBook()
	s := b.issued(time.Now)
	if _, err := s.Identify(t.Context(), token); bourse.CodeOf(err) != bourse.CodeUnauthorized {
		t.Errorf("a nonexistent token: %v", err)
	}
	b.young = true
	if _, err := s.Identify(t.Context(), token); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("before the broker has all tokens: %v", err)
	}
	b.byID[g.ID] = g
	if _, err := s.Identify(t.Context(), token); err != nil {
		t.Errorf("a token that the broker already has: %v", err)
	}
	b.young, b.err = false, errors.New("disk I/O error")
	if _, err := b.issued(time.Now).Identify(t.Context(), token); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("unreadable: %v", err)
	}
}

// TestTheDigestDecides checks that, if two tokens have the same ID, only the token with the right digest is accepted.
func TestTheDigestDecides(t *testing.T) {
	token, g := issue(inventory.Token{Org: "acme"})
	g.Digest = g.Digest[:63] + "x"
	if _, err := newBook(g).issued(time.Now).Identify(t.Context(), token); bourse.CodeOf(err) != bourse.CodeUnauthorized {
		t.Errorf("another's digest: %v", err)
	}
}

// TestCachedTokensAreNeverOutdated checks that a token is cached until something changes. A token
// that was read before a change must not be used after it, even if the change happens during the
// read.
func TestCachedTokensAreNeverOutdated(t *testing.T) {
	token, g := issue(inventory.Token{Org: "acme"})
	b := newBook(g)
	s := b.issued(time.Now)
	for range 3 {
		if _, err := s.Identify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if b.reads != 1 {
		t.Errorf("read %d times", b.reads)
	}
	_ = b.PutToken(t.Context(), &inventory.Token{ID: "another"})
	b.reading = func() { // the token is read while it is valid, then revoked, and another request notices the change
		b.reading = nil
		revoked := g
		revoked.RevokedAt = now
		_ = b.PutToken(t.Context(), &revoked)
		if _, err := s.Identify(t.Context(), token); bourse.CodeOf(err) != bourse.CodeUnauthorized {
			t.Errorf("revoked: %v", err)
		}
	}
	_, _ = s.Identify(t.Context(), token)
	if _, err := s.Identify(t.Context(), token); bourse.CodeOf(err) != bourse.CodeUnauthorized {
		t.Errorf("a token read before the change is still accepted after it: %v", err)
	}
}

// TestRevokedForAllAtOnce checks that all concurrent requests refuse a token as soon as its revocation is stored.
func TestRevokedForAllAtOnce(t *testing.T) {
	token, g := issue(inventory.Token{Org: "acme"})
	b := newBook(g)
	s := b.issued(time.Now)
	var written sync.WaitGroup
	written.Add(1)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				_, _ = s.Identify(context.Background(), token)
			}
			written.Wait()
			if _, err := s.Identify(context.Background(), token); bourse.CodeOf(err) != bourse.CodeUnauthorized {
				t.Errorf("after the revocation: %v", err)
			}
		})
	}
	g.RevokedAt = now
	_ = b.PutToken(t.Context(), &g)
	written.Done()
	all.Wait()
}

// FuzzDigest checks that only well-formed tokens are accepted, and that parsing stays
// within bounds.
func FuzzDigest(f *testing.F) {
	f.Add(endpoint.NewToken())
	f.Add("bourse_")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, text string) {
		id, digest, ok := endpoint.Digest(text)
		if ok && (endpoint.ValidID(id) != nil || !strings.HasPrefix(digest, id) || !strings.HasPrefix(text, "bourse_")) {
			t.Errorf("%q has id %q and digest %q", text, id, digest)
		}
	})
}
