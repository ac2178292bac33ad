package inventory

import (
	"encoding/base64"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// WireGuardPeer is a laptop that may connect to a private network, as recorded by a broker.
type WireGuardPeer struct {
	ID        string
	Name      string
	Org       string
	Network   string        // the network's name, see bourse.App.PrivateNetwork
	App       bourse.AppRef // the app whose network the laptop may join; zero if the laptop was registered for a network instead
	PublicKey [32]byte      // WireGuard's
	Worker    bourse.WorkerID
	MadeBy    string // name of the creator
	MadeWith  string // ID of the token that was used to create it; "" if that token came from a file
	CreatedAt time.Time
	ExpiresAt time.Time
	RemovedAt time.Time // zero if the laptop has not been removed
}

// WireGuardRow returns the row for a laptop. A removed laptop keeps its row, with removed_at set. Its row is never
// replaced by a [wire.DeletedRow].
func WireGuardRow(p *WireGuardPeer) wire.Row {
	columns := map[string]wire.Value{
		"name": cleanText(p.Name), "org": cleanText(p.Org), "network": cleanText(p.Network), "app": cleanText(p.App.Name), "app_id": cleanText(p.App.ID),
		"public_key": base64.StdEncoding.EncodeToString(p.PublicKey[:]), "worker": cleanText(p.Worker),
		"made_by": cleanText(p.MadeBy), "made_with": cleanText(p.MadeWith), "created_at": nanos(p.CreatedAt), "expires_at": nanos(p.ExpiresAt), "removed_at": nil,
	}
	if !p.RemovedAt.IsZero() {
		columns["removed_at"] = max(1, nanos(p.RemovedAt))
	}
	return wire.Row{Table: wire.TableWireGuard, Key: p.ID, Columns: columns}
}

// A broker that does not know a laptop yet may revoke the laptop's token or delete its app. Therefore, the query
// checks both.
const wireGuardSQL = `SELECT key, name, org, network, app, app_id, public_key, worker, made_by, made_with, created_at, expires_at
	FROM wireguard_rows AS r WHERE expires_at > ? AND removed_at IS NULL
	AND NOT EXISTS (SELECT 1 FROM token_rows AS t WHERE t.key = r.made_with AND t.revoked_at IS NOT NULL)
	AND NOT EXISTS (SELECT 1 FROM app_rows AS a WHERE a.key = r.app AND (a.id != r.app_id OR a.deleted_at IS NOT NULL))
	ORDER BY created_at, key`

// WireGuardPeers returns a query for the laptops that may connect at the given time, oldest first. It omits a laptop if
// it has expired or was removed, if its token was revoked, if its app was deleted, or if its key cannot be decoded.
func WireGuardPeers(now time.Time) func(*sqlite.Conn) ([]WireGuardPeer, error) {
	return func(c *sqlite.Conn) ([]WireGuardPeer, error) {
		var list []WireGuardPeer
		err := schema.Query(c, wireGuardSQL, func(s *sqlite.Stmt) error {
			r := cells{Stmt: s}
			p := WireGuardPeer{
				ID: s.ColumnText(0), Name: s.ColumnText(1), Org: s.ColumnText(2), Network: s.ColumnText(3),
				App:    bourse.AppRef{Name: bourse.AppName(s.ColumnText(4)), ID: s.ColumnText(5)},
				Worker: bourse.WorkerID(s.ColumnText(7)), MadeBy: s.ColumnText(8), MadeWith: s.ColumnText(9), CreatedAt: r.time(10), ExpiresAt: r.time(11),
			}
			key, err := base64.StdEncoding.DecodeString(s.ColumnText(6))
			if err == nil && len(key) == len(p.PublicKey) {
				p.PublicKey = [32]byte(key)
				list = append(list, p)
			}
			return nil
		}, now.UnixNano())
		return list, err
	}
}

// StoredWireGuardPeers returns a query that counts an organization's laptops, including those that WireGuardPeers
// omits.
func StoredWireGuardPeers(org string) func(*sqlite.Conn) (int, error) {
	return func(c *sqlite.Conn) (int, error) {
		n := 0
		err := schema.Query(c, "SELECT count(*) FROM wireguard_rows WHERE org = ?", func(s *sqlite.Stmt) error {
			n = s.ColumnInt(0)
			return nil
		}, org)
		return n, err
	}
}
