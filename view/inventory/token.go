package inventory

import (
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// Token is a client token, as recorded by a broker.
type Token struct {
	ID       string
	Digest   string // digest of the token
	Name     string
	Org      string // "*" means all organizations
	Apps     []bourse.AppRef
	Machines []bourse.MachineID
	ReadOnly bool
	MadeBy   string // name of the token's creator
	MadeWith string // ID of the token used to create it; "" if that token came from a file

	CreatedAt time.Time
	ExpiresAt time.Time // zero if the token never expires
	RevokedAt time.Time // zero if the token is not revoked

	Undecodable bool // whether the token's apps or machines could not be decoded; the token then permits nothing
}

// appCell represents an app in a token's row.
type appCell struct {
	Name bourse.AppName `json:"name"`
	ID   string         `json:"id,omitempty"`
}

// TokenRow returns the row for a token. A revoked token keeps its row, which is never
// replaced by a [wire.DeletedRow].
func TokenRow(t *Token) wire.Row {
	apps := make([]appCell, len(t.Apps))
	for i, app := range t.Apps {
		apps[i] = appCell(app)
	}
	columns := map[string]wire.Value{
		"digest": cleanText(t.Digest), "name": cleanText(t.Name), "org": cleanText(t.Org), "read_only": boolean(t.ReadOnly),
		"apps": jsonText(apps, unreadable), "machines": jsonText(append([]bourse.MachineID{}, t.Machines...), unreadable),
		"made_by": cleanText(t.MadeBy), "made_with": cleanText(t.MadeWith),
		"created_at": nanos(t.CreatedAt), "expires_at": nanos(t.ExpiresAt), "revoked_at": nil,
	}
	if !t.RevokedAt.IsZero() {
		columns["revoked_at"] = max(1, nanos(t.RevokedAt))
	}
	return wire.Row{Table: wire.TableTokens, Key: t.ID, Columns: columns}
}

// unreadable is stored in place of a list that does not fit into a column. It is deliberately not a
// list, because an empty list would mean "no restriction".
const unreadable = "{}"

const (
	tokenColumns = `key, digest, name, org, apps, machines, read_only, made_by, made_with, created_at, expires_at, revoked_at`
	tokensSQL    = `SELECT ` + tokenColumns + ` FROM token_rows ORDER BY created_at, key`
	tokenSQL     = `SELECT ` + tokenColumns + ` FROM token_rows WHERE key = ?`
)

// Tokens returns a query for all tokens, including revoked ones, oldest first.
func Tokens() func(*sqlite.Conn) ([]Token, error) {
	return func(c *sqlite.Conn) ([]Token, error) { return readTokens(c, tokensSQL) }
}

// TokenByID returns a query for the token with this ID. Its result is nil if there is none.
func TokenByID(id string) func(*sqlite.Conn) (*Token, error) {
	return func(c *sqlite.Conn) (*Token, error) {
		list, err := readTokens(c, tokenSQL, id)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return &list[0], nil
	}
}

func readTokens(c *sqlite.Conn, sql string, args ...any) ([]Token, error) {
	var list []Token
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		list = append(list, readToken(&cells{Stmt: s}))
		return nil
	}, args...)
	return list, err
}

func readToken(r *cells) Token {
	t := Token{
		ID: r.ColumnText(0), Digest: r.ColumnText(1), Name: r.ColumnText(2), Org: r.ColumnText(3), ReadOnly: r.ColumnInt64(6) != 0,
		MadeBy: r.ColumnText(7), MadeWith: r.ColumnText(8), CreatedAt: r.time(9), ExpiresAt: r.time(10), RevokedAt: r.time(11),
	}
	var apps []appCell
	t.Undecodable = !r.json(4, &apps) || !r.json(5, &t.Machines)
	for _, app := range apps {
		t.Apps = append(t.Apps, bourse.AppRef(app))
	}
	return t
}
