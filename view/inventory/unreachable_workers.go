package inventory

import (
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// UnreachableWorker describes a worker that is unreachable or whose status is unknown, including
// how many machines and volumes it has.
type UnreachableWorker struct {
	ID                bourse.WorkerID
	HeardAt           time.Time // time when the worker was last reachable; zero if it never was
	Machines, Volumes int
}

const unreachableSQL = `SELECT r.site, s.heard_at,
	(SELECT count(*) FROM machine_rows AS m WHERE m.site = r.site), (SELECT count(*) FROM volume_rows AS v WHERE v.site = r.site)
	FROM worker_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE r.key = r.site AND coalesce(s.alive, 0) = 0 ORDER BY r.site`

// UnreachableWorkers returns a query for the workers that are unreachable or whose status is
// unknown, sorted by ID.
func UnreachableWorkers() func(*sqlite.Conn) ([]UnreachableWorker, error) {
	return func(c *sqlite.Conn) ([]UnreachableWorker, error) {
		var out []UnreachableWorker
		err := schema.Query(c, unreachableSQL, func(s *sqlite.Stmt) error {
			w := UnreachableWorker{ID: bourse.WorkerID(s.ColumnText(0)), Machines: s.ColumnInt(2), Volumes: s.ColumnInt(3)}
			if !s.ColumnIsNull(1) {
				w.HeardAt = timeOf(s.ColumnInt64(1))
			}
			out = append(out, w)
			return nil
		})
		return out, err
	}
}
