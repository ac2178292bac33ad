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

// Everything takes the place of an organization's slug in tokens that are valid for all organizations and for the
// cluster itself. It is not a valid slug.
const Everything = "*"

// identityOf returns the identity of a token's owner.
func identityOf(t *inventory.Token) Identity {
	who := Identity{Name: t.Name, Token: t.ID, Org: t.Org, Apps: t.Apps, Machines: t.Machines, Until: t.ExpiresAt, ReadOnly: t.ReadOnly}
	if t.Org == Everything {
		who.Org = ""
	}
	return who
}

// checkValid returns nil if a token is valid now. Otherwise it returns CodeUnauthorized, or CodeUnavailable if this
// release cannot tell whether the token is valid.
func checkValid(t *inventory.Token, now time.Time) error {
	switch {
	case !t.RevokedAt.IsZero():
		return &bourse.Error{Code: bourse.CodeUnauthorized, Message: "token " + t.ID + " was revoked", Err: ErrTokenEnded}
	case !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt):
		return &bourse.Error{Code: bourse.CodeUnauthorized, Message: "token " + t.ID + " has expired", Err: ErrTokenEnded}
	case t.Undecodable || t.Org == "":
		return bourse.Errorf(bourse.CodeUnavailable, "token %s cannot be read: its row in the view has no organization or an invalid list of apps or machines", t.ID)
	}
	return nil
}

// ErrTokenEnded is wrapped by errors about tokens that are no longer valid. The text of these errors may be shown to
// the token's bearer.
var ErrTokenEnded = errors.New("the token is no longer valid")

// IsValid reports whether the token is valid now, as far as this release can determine.
func IsValid(t *inventory.Token, now time.Time) bool { return checkValid(t, now) == nil }

// Token format. The prefix lets people and secret scanners recognize Bourse tokens, and lets clients tell them apart
// from Fly tokens.
const (
	tokenPrefix = "bourse_"
	tokenBytes  = 32
)

var (
	letters     = base32.StdEncoding.WithPadding(base32.NoPadding)
	tokenLength = len(tokenPrefix) + letters.EncodedLen(tokenBytes)
)

// NewToken generates a token.
func NewToken() string {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // crypto/rand never fails
	return tokenPrefix + strings.ToLower(letters.EncodeToString(b))
}

// idLength is the length of a token's ID, which is the beginning of its digest.
const idLength = 16

// Digest returns a token's ID and digest. If the string does not have the format of a token, it
// returns false; this check is cheap for strings of any length.
//
// A fast hash (SHA-256) is sufficient. Passwords need a slow hash because attackers can guess likely passwords. A token
// contains 256 random bits, which cannot be guessed, and a slow hash would delay every request.
func Digest(token string) (id, digest string, ok bool) {
	rest, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || len(token) != tokenLength || strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", "", false
	}
	sum := sha256.Sum256([]byte(token))
	digest = hex.EncodeToString(sum[:])
	return digest[:idLength], digest, true
}

// ValidID returns CodeInvalid if id is not a token ID.
func ValidID(id string) error {
	if b, err := hex.DecodeString(id); err != nil || len(b) != idLength/2 || strings.ToLower(id) != id {
		return bourse.Errorf(bourse.CodeInvalid, "%s is not a token id: an id has %d hexadecimal digits", bourse.Quoted(id), idLength)
	}
	return nil
}
