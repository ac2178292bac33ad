package bourse

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// DefaultAppName names the app that exists without being made, so that a first
// machine needs no ceremony.
const DefaultAppName = AppName("default")

// DefaultOrg owns what names no organization.
const DefaultOrg = "personal"

// DefaultApp is the default app's record, given what was there before: nothing
// (a zero App), or a tombstone. Everybody makes the same one of it.
func DefaultApp(before App) App {
	app := App{Name: DefaultAppName, Org: DefaultOrg, CreatedAt: time.UnixMilli(0).UTC()}
	if before.DeletedAt != nil {
		app.CreatedAt, app.Life = *before.DeletedAt, before.Life+1
	}
	app.ID = IDOf("default app", before.ID)
	return app
}

// IDOf makes an id, in the shape of a ULID, of texts: the same texts give the
// same id.
func IDOf(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	var id ulid.ULID
	copy(id[:], sum[:])
	return id.String()
}
