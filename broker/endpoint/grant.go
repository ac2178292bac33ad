package endpoint

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Grant is what is kept of a token that the API has made: what it is good for, and
// a digest by which it is known again.
//
// SHA-256 is enough of a digest. A password wants a slow one, since there are few
// passwords; of 256 random bits none is ever found by trying, and each request pays
// for the digest.
type Grant struct {
	ID       string
	Digest   string // of the token
	Name     string
	Org      string // Everything: all of them
	Apps     []bourse.AppRef
	Machines []bourse.MachineID
	ReadOnly bool
	MadeBy   string // the name of who made it
	MadeWith string // the id of the token that it was made with, "" for one of a file

	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: it is good

	Unread bool // a newer release says more of it, or something else: it may be good for less
}

// Everything stands in place of an organization where a token is good for all, and
// for the cluster itself. It is no slug.
const Everything = "*"

// identity returns whom the grant is about.
func (g *Grant) identity() Identity {
	who := Identity{Name: g.Name, Token: g.ID, Org: g.Org, Apps: g.Apps, Machines: g.Machines, Until: g.ExpiresAt, ReadOnly: g.ReadOnly}
	if g.Org == Everything {
		who.Org = ""
	}
	return who
}

// good reports why a token is good for nothing now: CodeUnauthorized, or
// CodeUnavailable when this release cannot tell.
func (g *Grant) good(now time.Time) error {
	switch {
	case !g.RevokedAt.IsZero():
		return &bourse.Error{Code: bourse.CodeUnauthorized, Message: "token " + g.ID + " was revoked", Err: ErrEnded}
	case !g.ExpiresAt.IsZero() && !now.Before(g.ExpiresAt):
		return &bourse.Error{Code: bourse.CodeUnauthorized, Message: "token " + g.ID + " has expired", Err: ErrEnded}
	case g.Unread || g.Org == "":
		return bourse.Errorf(bourse.CodeUnavailable, "token %s was made by a newer release than this broker's: another broker may know what it is good for", g.ID)
	}
	return nil
}

// ErrEnded is below the error of a token that was good. Who shows it may know.
var ErrEnded = errors.New("the token is good no more")

// Live reports whether the token is good now, as far as this release can tell.
func (g *Grant) Live(now time.Time) bool { return g.good(now) == nil }

// What a token looks like: what begins it tells people and scanners of secrets what
// it is, and clients that it is none of Fly's.
const (
	tokenPrefix = "bourse_"
	tokenBytes  = 32
)

var (
	letters     = base32.StdEncoding.WithPadding(base32.NoPadding)
	tokenLength = len(tokenPrefix) + letters.EncodedLen(tokenBytes)
)

// NewToken makes a token.
func NewToken() string {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // crypto/rand never fails
	return tokenPrefix + strings.ToLower(letters.EncodeToString(b))
}

// idLength is how much of a digest is the id.
const idLength = 16

// Digest returns the id and the digest of a token; false for what is no token of
// ours, which costs nothing however long it is.
func Digest(token string) (id, digest string, ok bool) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(token) != tokenLength || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", "", false
	}
	sum := sha256.Sum256([]byte(token))
	digest = hex.EncodeToString(sum[:])
	return digest[:idLength], digest, true
}

// ValidID reports CodeInvalid for what is no id of a token.
func ValidID(id string) error {
	if b, err := hex.DecodeString(id); err != nil || len(b) != idLength/2 || strings.ToLower(id) != id {
		return bourse.Errorf(bourse.CodeInvalid, "%s is no id of a token: it has %d letters of 0-9 and a-f", bourse.Quoted(id), idLength)
	}
	return nil
}

func (g *Grant) is(digest string) bool {
	return subtle.ConstantTimeCompare([]byte(g.Digest), []byte(digest)) == 1
}
