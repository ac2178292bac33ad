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

// Scope is what a client's token is good for: everything, metrics, an
// organisation, or one app of it.
type Scope struct {
	Cluster bool           // everything, the workers too; Org and App are empty
	Scraper bool           // metrics only; Org and App are empty
	Org     string         // else never empty
	App     bourse.AppName // "" means every app of the organisation
}

// everything means all organisations in a file of tokens. It is no slug.
const everything = "*"

// ScraperScope stands in place of an organisation where a token is good for
// metrics only. It is no slug either.
const ScraperScope = "role:" + string(bourse.RoleScraper)

// TokenSet is the tokens that a broker takes. Those that were read from a file
// follow it: see [TokenSet.Look].
type TokenSet struct{ *Live[*tokenTable] }

// tokenTable is a set of tokens at one time. Once read it is never changed.
type tokenTable struct {
	salt   []byte
	scopes map[[sha256.Size]byte]Scope // by digest, so that the time of a comparison reveals nothing about a token
}

const (
	minToken = 16 // characters; fewer can be guessed
	maxToken = 4096
)

// LoadTokens reads a file of tokens; see [ReadTokens].
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

// OneToken is a set of one token, which is good for everything.
func OneToken(token string) (*TokenSet, error) {
	return ReadTokens(strings.NewReader(token + " " + everything))
}

// ReadTokens reads tokens, one a line: the token, the organisation's slug and,
// if it is good for one app only, that app's name. In place of both, "*" is the
// whole cluster, and "role:scraper" is its metrics. Empty lines and those that
// begin with "#" are left out. A file without a token, or with a line that is
// none, is CodeInvalid; the error names the line and not what is in it.
func ReadTokens(r io.Reader) (*TokenSet, error) {
	t, err := readTokens(r)
	if err != nil {
		return nil, err
	}
	return &TokenSet{still(t)}, nil
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
		return nil, bourse.Errorf(bourse.CodeInvalid, "the file holds no token: no client could connect")
	}
	return t, nil
}

func (t *tokenTable) add(words []string) error {
	if len(words) < 2 || len(words) > 3 {
		return bourse.Errorf(bourse.CodeInvalid, "want a token, an organisation and perhaps an app")
	}
	if n := len(words[0]); n < minToken || n > maxToken {
		return bourse.Errorf(bourse.CodeInvalid, "the token has %d characters: use %d to %d", n, minToken, maxToken)
	}
	if words[1] == everything {
		if len(words) > 2 {
			return bourse.Errorf(bourse.CodeInvalid, "a token for everything has no app")
		}
		return t.put(words[0], Scope{Cluster: true})
	}
	if words[1] == ScraperScope {
		if len(words) > 2 {
			return bourse.Errorf(bourse.CodeInvalid, "a scraper's token has no app")
		}
		return t.put(words[0], Scope{Scraper: true})
	}
	s := Scope{Org: words[1]}
	if bourse.AppName(s.Org).Validate() != nil { // the same alphabet
		return bourse.Errorf(bourse.CodeInvalid, "the second word is no organisation: use a-z, 0-9 and \"-\", \"*\" for everything, or \"role:scraper\" for metrics")
	}
	if len(words) == 3 {
		s.App = bourse.AppName(words[2])
		if s.App.Validate() != nil {
			return bourse.Errorf(bourse.CodeInvalid, "the third word is no app's name")
		}
	}
	return t.put(words[0], s)
}

func (t *tokenTable) put(token string, s Scope) error {
	d := t.digest(token)
	if _, twice := t.scopes[d]; twice {
		return bourse.Errorf(bourse.CodeInvalid, "the token was named before")
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

// Lookup returns what a token is good for, false when it is not known here.
func (t *TokenSet) Lookup(token string) (Scope, bool) {
	if len(token) > maxToken {
		return Scope{}, false
	}
	now := t.Get()
	s, ok := now.scopes[now.digest(token)]
	return s, ok
}
