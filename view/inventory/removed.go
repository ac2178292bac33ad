package inventory

import (
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// RemovedRow returns the row that removes a server. The row invalidates all owned rows that the
// server has written in epochs up to now. The number of an epoch is the time when it began.
func RemovedRow(m *bourse.Member, now time.Time) wire.Row {
	return wire.Row{Table: wire.TableRemoved, Key: string(m.ID), Columns: map[string]wire.Value{
		"until": now.UnixMilli(), "role": cleanText(m.Role), "region": cleanText(m.Region), "tag": int64(m.Tag),
	}}
}

// RemovedMember is a server that an operator has removed from the cluster.
type RemovedMember struct {
	ID       bourse.WorkerID
	Role     bourse.Role
	Region   bourse.Region
	Tag      bourse.WorkerTag
	At       time.Time // time of the removal
	Returned bool      // whether the server has returned since and written to the view
}

const removedSQL = `SELECT r.key, r.role, r.region, r.tag, r.until,
	EXISTS (SELECT 1 FROM streams AS t WHERE t.site = r.key AND t.epoch > r.until) FROM removed_rows AS r ORDER BY r.key`

// Removed returns a query for the servers that an operator has removed, sorted by ID.
func Removed() func(*sqlite.Conn) ([]RemovedMember, error) {
	return func(c *sqlite.Conn) ([]RemovedMember, error) {
		var out []RemovedMember
		err := schema.Query(c, removedSQL, func(s *sqlite.Stmt) error {
			w := RemovedMember{
				ID: bourse.WorkerID(s.ColumnText(0)), Role: bourse.Role(s.ColumnText(1)), Region: bourse.Region(s.ColumnText(2)),
				Tag: bourse.WorkerTag(s.ColumnInt64(3) & 0xffffff), At: time.UnixMilli(s.ColumnInt64(4)), Returned: s.ColumnInt(5) != 0,
			}
			if w.ID.Validate() == nil {
				out = append(out, w)
			}
			return nil
		})
		return out, err
	}
}
