package admission

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"os"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Scope is the set of resources to which a client's token gives access: everything, metrics, an
// organization, or one of its apps.
type Scope struct {
	Cluster bool           // gives access to everything, including workers; Org and App are empty
	Scraper bool           // gives access to metrics only; Org and App are empty
	Org     string         // the organization's slug; not empty if Cluster and Scraper are false
	App     bourse.AppName // "" means all apps of the organization
}

// allOrgs stands for all organizations in a token file. It is not a valid slug.
const allOrgs = "*"

// ScraperScope replaces the organization in the line of a token that is valid only for metrics. It
// is not a valid slug.
const ScraperScope = "role:" + string(bourse.RoleScraper)

// TokenSet is the set of tokens that a broker accepts. If it comes from a file,
// [TokenSet.Look] reloads it.
type TokenSet struct{ *Live[*tokenTable] }

// tokenTable is one immutable version of a set of tokens.
type tokenTable struct {
	salt   []byte
	scopes map[[sha256.Size]byte]Scope // scopes by the tokens' digests, so that the duration of a lookup reveals nothing about a token
}

const (
	minToken = 16 // in characters; shorter tokens could be guessed
	maxToken = 4096
)

// LoadTokens reads a token file; see [ReadTokens] for its format.
func LoadTokens(path string) (*TokenSet, error) {
	live, err := NewLive([]string{path}, func() (*tokenTable, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read tokens: %w", err)
		}
		defer f.Close()
		return readTokens(f)
	}, nil)
	if err != nil {
		return nil, err
	}
	return &TokenSet{live}, nil
}

// OneToken returns a set that contains only the given token, which is valid for everything. Errors:
// invalid.
func OneToken(token string) (*TokenSet, error) {
	return ReadTokens(strings.NewReader(token + " " + allOrgs))
}

// ReadTokens reads tokens, one per line. A line contains the token, the organization's slug and, if
// the token is valid for only one app, the app's name. The slug "*" stands for the whole cluster,
// and "role:scraper" for its metrics. Empty lines and lines that begin with "#" are ignored.
// Errors: invalid if there is no token or an invalid line. An error contains the number of the
// line, but not its content.
func ReadTokens(r io.Reader) (*TokenSet, error) {
	t, err := readTokens(r)
	if err != nil {
		return nil, err
	}
	return &TokenSet{unchanging(t)}, nil
}

func readTokens(r io.Reader) (*tokenTable, error) {
	t := &tokenTable{salt: make([]byte, sha256.Size), scopes: map[[sha256.Size]byte]Scope{}}
	_, _ = rand.Read(t.salt) // crypto/rand never fails
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := t.add(words); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "tokens, line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read tokens: %w", err)
	}
	if len(t.scopes) == 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the file does not contain a token, so no client could connect")
	}
	return t, nil
}

func (t *tokenTable) add(words []string) error {
	if len(words) < 2 || len(words) > 3 {
		return bourse.Errorf(bourse.CodeInvalid, "want a token, an organization and optionally an app")
	}
	if n := len(words[0]); n < minToken || n > maxToken {
		return bourse.Errorf(bourse.CodeInvalid, "the token has %d characters: use %d to %d", n, minToken, maxToken)
	}
	if words[1] == allOrgs {
		if len(words) > 2 {
			return bourse.Errorf(bourse.CodeInvalid, "an unrestricted token cannot be limited to an app")
		}
		return t.put(words[0], Scope{Cluster: true})
	}
	if words[1] == ScraperScope {
		if len(words) > 2 {
			return bourse.Errorf(bourse.CodeInvalid, "a scraper's token cannot be limited to an app")
		}
		return t.put(words[0], Scope{Scraper: true})
	}
	s := Scope{Org: words[1]}
	if bourse.AppName(s.Org).Validate() != nil { // slugs have the same alphabet as apps' names
		return bourse.Errorf(bourse.CodeInvalid, "the second word is not an organization: use a-z, 0-9 and \"-\", \"*\" for everything, or \"role:scraper\" for metrics")
	}
	if len(words) == 3 {
		s.App = bourse.AppName(words[2])
		if s.App.Validate() != nil {
			return bourse.Errorf(bourse.CodeInvalid, "the third word is not a valid app name")
		}
	}
	return t.put(words[0], s)
}

func (t *tokenTable) put(token string, s Scope) error {
	d := t.digest(token)
	if _, twice := t.scopes[d]; twice {
		return bourse.Errorf(bourse.CodeInvalid, "duplicate token")
	}
	t.scopes[d] = s
	return nil
}

func (t *tokenTable) digest(token string) (d [sha256.Size]byte) {
	h := hmac.New(sha256.New, t.salt)
	h.Write([]byte(token))
	h.Sum(d[:0])
	return d
}

// Lookup returns a token's scope. It returns false if the token is not in the set.
func (t *TokenSet) Lookup(token string) (Scope, bool) {
	if len(token) > maxToken {
		return Scope{}, false
	}
	now := t.Get()
	s, ok := now.scopes[now.digest(token)]
	return s, ok
}
