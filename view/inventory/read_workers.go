package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// Workers returns a query for all workers, sorted by ID, including workers that are unreachable or
// leaving.
func Workers() func(*sqlite.Conn) ([]WorkerHint, error) { return readWorkers }

const workersSQL = `SELECT r.key, r.region, r.tag, r.load, r.leaving, r.free, r.labels, ` + hostColumns + `
	FROM worker_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE r.key = r.site ORDER BY r.site`

func readWorkers(c *sqlite.Conn) ([]WorkerHint, error) {
	var list []WorkerHint
	var r cells
	err := schema.Query(c, workersSQL, func(s *sqlite.Stmt) error {
		r.Stmt = s
		w := WorkerHint{
			ID: bourse.WorkerID(r.ColumnText(0)), Region: bourse.Region(r.ColumnText(1)),
			Tag: bourse.WorkerTag(r.ColumnInt64(2) & 0xffffff), Load: r.ColumnFloat(3), Leaving: r.ColumnBool(4),
			Free: readAmounts(&r, 5),
		}
		if !r.empty(6) && !r.json(6, &w.Labels) {
			w.Labels = nil
		}
		w.HostStatus, w.HeardAt = readHost(&r, 7)
		list = append(list, w)
		return nil
	})
	return list, err
}
