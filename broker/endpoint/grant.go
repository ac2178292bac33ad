package endpoint

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Everything stands in place of an organization where a token is good for all, and
// for the cluster itself. It is no slug.
const Everything = "*"

// identityOf returns the owner of a token.
func identityOf(t *inventory.Token) Identity {
	who := Identity{Name: t.Name, Token: t.ID, Org: t.Org, Apps: t.Apps, Machines: t.Machines, Until: t.ExpiresAt, ReadOnly: t.ReadOnly}
	if t.Org == Everything {
		who.Org = ""
	}
	return who
}

// good reports why a token is good for nothing now: CodeUnauthorized, or
// CodeUnavailable when this release cannot tell.
func good(t *inventory.Token, now time.Time) error {
	switch {
	case !t.RevokedAt.IsZero():
		return &bourse.Error{Code: bourse.CodeUnauthorized, Message: "token " + t.ID + " was revoked", Err: ErrEnded}
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return &bourse.Error{Code: bourse.CodeUnauthorized, Message: "token " + t.ID + " has expired", Err: ErrEnded}
	case t.Unread || t.Org == "":
		return bourse.Errorf(bourse.CodeUnavailable, "token %s cannot be read: its row in the view names no organisation, or no valid list of apps and machines", t.ID)
	}
	return nil
}

// ErrEnded is below the error of a token that was good. Who shows it may know.
var ErrEnded = errors.New("the token is good no more")

// Live reports whether the token is good now, as far as this release can tell.
func Live(t *inventory.Token, now time.Time) bool { return good(t, now) == nil }

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
//
// SHA-256 is enough of a digest. A password wants a slow one, since there are few
// passwords; of 256 random bits none is ever found by trying, and each request pays
// for the digest.
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
