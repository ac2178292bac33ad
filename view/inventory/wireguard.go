package inventory

import (
	"encoding/base64"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// WireGuardPeer is a broker's record of a laptop that may connect to a private network.
type WireGuardPeer struct {
	ID        string
	Name      string
	Org       string
	Network   string        // bourse.App.PrivateNetwork of the network's apps
	App       bourse.AppRef // the app for whose network it was created; zero if it was created for a network
	PublicKey [32]byte      // WireGuard's
	Worker    bourse.WorkerID
	MadeBy    string // name of the creator
	MadeWith  string // ID of the token with which it was created; "" if that token came from a file
	CreatedAt time.Time
	ExpiresAt time.Time
}

// WireGuardRow returns the row of a laptop. It is removed with [wire.DeletedRow].
func WireGuardRow(p *WireGuardPeer) wire.Row {
	return wire.Row{Table: wire.TableWireGuard, Key: p.ID, Columns: map[string]wire.Value{
		"name": cleanText(p.Name), "org": cleanText(p.Org), "network": cleanText(p.Network), "app": cleanText(p.App.Name), "app_id": cleanText(p.App.ID),
		"public_key": base64.StdEncoding.EncodeToString(p.PublicKey[:]), "worker": cleanText(p.Worker),
		"made_by": cleanText(p.MadeBy), "made_with": cleanText(p.MadeWith), "created_at": nanos(p.CreatedAt), "expires_at": nanos(p.ExpiresAt),
	}}
}

const wireGuardSQL = `SELECT key, name, org, network, app, app_id, public_key, worker, made_by, made_with, created_at, expires_at
	FROM wireguard_rows ORDER BY created_at, key`

// WireGuardPeers returns a query for all laptops, oldest first, including expired ones. It omits those whose key cannot be
// decoded.
func WireGuardPeers() func(*sqlite.Conn) ([]WireGuardPeer, error) {
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
		})
		return list, err
	}
}
