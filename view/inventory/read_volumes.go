package inventory

import (
	"cmp"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/schema"
)

// ListedVolume is a volume as last published by its worker, together with the worker's status. It
// does not include older snapshots.
type ListedVolume struct {
	bourse.Volume
	HostStatus machinesapi.HostStatus // the worker's status
	HeardAt    time.Time              // time when the worker was last reachable; zero if it never was
}

// VolumeFilter selects the volumes that match all fields that are set.
type VolumeFilter struct {
	ID     bourse.VolumeID
	App    bourse.AppName
	Worker bourse.WorkerID
}

// Volumes returns a query for the volumes that match a filter, sorted by creation time, then by ID.
func Volumes(f VolumeFilter) func(*sqlite.Conn) ([]ListedVolume, error) {
	return func(c *sqlite.Conn) ([]ListedVolume, error) { return readVolumes(c, f) }
}

const volumesFrom = `SELECT ` + volumeColumns + `, ` + hostColumns + ` FROM volume_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE `

// volumesSQL returns the statement for a filter, and its arguments.
func volumesSQL(f VolumeFilter) (string, []any) {
	return where(volumesFrom, condition{"r.key", string(f.ID)}, condition{"r.app", string(f.App)}, condition{"r.site", string(f.Worker)})
}

func readVolumes(c *sqlite.Conn, f VolumeFilter) ([]ListedVolume, error) {
	sql, args := volumesSQL(f)
	var list []ListedVolume
	var r cells
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		r.Stmt = s
		var l ListedVolume
		next := readVolume(&r, &l.Volume)
		l.HostStatus, l.HeardAt = readHost(&r, next)
		if l.ID.Validate() == nil && (f.App == "" || l.App != "") { // skip a volume whose ID is invalid, or that no broker has placed in the app
			list = append(list, l)
		}
		return nil
	}, args...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b ListedVolume) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Worker, b.Worker))
	})
	return removeDuplicates(c, list, func(l *ListedVolume) idClaim { return idClaim{string(l.ID), l.Worker, l.ID.Tag()} })
}
