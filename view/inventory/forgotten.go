package inventory

import (
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// ForgottenRow returns the row that removes a worker and invalidates the rows that it wrote before now. The time is
// also the last epoch that is removed, because epochs are times.
func ForgottenRow(m *bourse.Member, now time.Time) wire.Row {
	return wire.Row{Table: wire.TableForgotten, Key: string(m.ID), Columns: map[string]wire.Value{
		"until": now.UnixMilli(), "region": cleanText(m.Region), "tag": int64(m.Tag),
	}}
}

// ForgottenWorker is a removed worker that has not returned.
type ForgottenWorker struct {
	ID     bourse.WorkerID
	Region bourse.Region
	Tag    bourse.WorkerTag
	At     time.Time // time of its removal
}

const forgottenSQL = `SELECT f.key, f.region, f.tag, f.until FROM forgotten_rows AS f
	WHERE NOT EXISTS (SELECT 1 FROM streams AS t WHERE t.site = f.key AND t.epoch > f.until) ORDER BY f.key`

// Forgotten returns a query for the removed workers that have not returned.
func Forgotten() func(*sqlite.Conn) ([]ForgottenWorker, error) {
	return func(c *sqlite.Conn) ([]ForgottenWorker, error) {
		var out []ForgottenWorker
		err := schema.Query(c, forgottenSQL, func(s *sqlite.Stmt) error {
			w := ForgottenWorker{
				ID: bourse.WorkerID(s.ColumnText(0)), Region: bourse.Region(s.ColumnText(1)),
				Tag: bourse.WorkerTag(s.ColumnInt64(2) & 0xffffff), At: time.UnixMilli(s.ColumnInt64(3)),
			}
			if w.ID.Validate() == nil {
				out = append(out, w)
			}
			return nil
		})
		return out, err
	}
}
