package inventory

import (
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// CertifiedMember is a broker or proxy that has a cluster certificate, whether or not it is
// running. Workers do not need such records, because a worker's own row remains in the view while
// the worker is down.
type CertifiedMember struct {
	ID        bourse.WorkerID
	Role      bourse.Role
	Region    bourse.Region
	IssuedAt  time.Time
	ExpiresAt time.Time // the server cannot return with its certificate after this time
	HeardAt   time.Time // time when the server was last reachable, if this member knows it; CertifiedRow ignores it
}

// CertifiedRow returns the row for a broker or proxy.
func CertifiedRow(m *CertifiedMember) wire.Row {
	return wire.Row{Table: wire.TableCertified, Key: string(m.ID), Columns: map[string]wire.Value{
		"role": cleanText(m.Role), "region": cleanText(m.Region), "issued_at": nanos(m.IssuedAt), "expires_at": nanos(m.ExpiresAt),
	}}
}

// Removal times are in milliseconds, certificate times in nanoseconds.
const certifiedSQL = `SELECT r.key, r.role, r.region, r.issued_at, r.expires_at, coalesce(s.heard_at, 0)
	FROM certified_rows AS r LEFT JOIN sites AS s ON s.site = r.key LEFT JOIN removed_rows AS d ON d.key = r.key
	WHERE d.until IS NULL OR r.issued_at / 1000000 > d.until ORDER BY r.key`

// Certified returns a query for the brokers and proxies that have certificates, sorted by ID. It
// omits servers that an operator has removed since their certificates were issued. It includes
// servers whose certificates have expired.
func Certified() func(*sqlite.Conn) ([]CertifiedMember, error) {
	return func(c *sqlite.Conn) ([]CertifiedMember, error) {
		var out []CertifiedMember
		err := schema.Query(c, certifiedSQL, func(s *sqlite.Stmt) error {
			r := cells{Stmt: s}
			m := CertifiedMember{
				ID: bourse.WorkerID(s.ColumnText(0)), Role: bourse.Role(s.ColumnText(1)), Region: bourse.Region(s.ColumnText(2)),
				IssuedAt: r.time(3), ExpiresAt: r.time(4), HeardAt: r.time(5),
			}
			if m.ID.Validate() == nil {
				out = append(out, m)
			}
			return nil
		})
		return out, err
	}
}
