package view

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// ListedVolume is a volume as its worker told of it last, and how much that is
// worth now. It has its newest snapshots only.
type ListedVolume struct {
	bourse.Volume
	HostStatus string    // HostOK, HostUnreachable or HostUnknown
	HeardAt    time.Time // when its worker was last heard; zero: never
}

// VolumeFilter says which volumes are meant: those that agree with all that is
// set.
type VolumeFilter struct {
	ID     bourse.VolumeID
	App    bourse.AppName
	Worker bourse.WorkerID
}

// Volumes lists volumes by the time they were made, then by id.
func (v *View) Volumes(ctx context.Context, f VolumeFilter) ([]ListedVolume, error) {
	var list []ListedVolume
	err := v.read(ctx, func(c *sqlite.Conn) (err error) {
		list, err = readVolumes(c, f)
		return err
	})
	return list, err
}

const volumesFrom = `SELECT ` + volumeColumns + `, ` + hostColumns + ` FROM volume_rows AS r LEFT JOIN sites AS s ON s.site = r.site WHERE `

// volumesSQL gives the statement for a filter and its arguments. What narrows
// most leads to an index; see machinesSQL.
func volumesSQL(f VolumeFilter) (string, []any) {
	return filtered(volumesFrom, condition{"r.key", string(f.ID)}, condition{"r.app", string(f.App)}, condition{"r.site", string(f.Worker)})
}

// condition asks a column for a value; an empty one asks nothing.
type condition struct{ column, value string }

// filtered ends a statement with conditions. The first leads to its index; the
// others carry a plus, so that SQLite does not choose theirs instead.
func filtered(from string, conditions ...condition) (string, []any) {
	var where []string
	var args []any
	for _, c := range conditions {
		if c.value == "" {
			continue
		}
		if len(where) > 0 {
			c.column = "+" + c.column
		}
		where, args = append(where, c.column+" = ?"), append(args, c.value)
	}
	if len(where) == 0 {
		return from + "TRUE", nil
	}
	return from + strings.Join(where, " AND "), args
}

func readVolumes(c *sqlite.Conn, f VolumeFilter) ([]ListedVolume, error) {
	sql, args := volumesSQL(f)
	var list []ListedVolume
	var r cells
	err := query(c, sql, func(s *sqlite.Stmt) error {
		r.Stmt = s
		var l ListedVolume
		next := readVolume(&r, &l.Volume)
		l.HostStatus, l.HeardAt = readHost(&r, next)
		if l.ID.Validate() == nil { // or nobody could ask for it
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
	return settleOwners(c, list, func(l *ListedVolume) claimant { return claimant{string(l.ID), l.Worker, l.ID.Tag()} })
}
