package inventory

import (
	"encoding/json"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// ReleaseRow returns the row for a release.
func ReleaseRow(r *release.Release) wire.Row {
	return wire.Row{Table: wire.TableReleases, Key: string(r.ID), Columns: map[string]wire.Value{
		"app": cleanText(r.App), "app_id": cleanText(r.AppID), "version": r.Version, "status": cleanText(r.Status),
		"strategy": cleanText(r.Strategy), "description": cleanText(r.Description), "image": cleanText(r.Image),
		"definition": rawText(r.Definition), "metadata": rawText(r.Metadata), "created_by": cleanText(r.User),
		"created_at": nanos(r.CreatedAt), "updated_at": nanos(r.UpdatedAt),
	}}
}

// rawText returns raw as the value of a column, or "{}" if raw is empty or other members would
// reject it.
func rawText(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "{}"
	}
	return jsonText(raw, "{}")
}

// ReleaseGone returns the row that deletes a release.
func ReleaseGone(id release.ID) wire.Row { return wire.DeletedRow(wire.TableReleases, string(id)) }

const (
	releaseColumns = `SELECT key, app, app_id, version, status, strategy, description, image, definition, metadata, created_by, created_at, updated_at FROM release_rows`
	releasesSQL    = releaseColumns + ` WHERE app_id = ? ORDER BY key`
)

// Releases returns a query for the releases of the app with this ID, oldest first.
func Releases(app string) func(*sqlite.Conn) ([]release.Release, error) {
	return func(c *sqlite.Conn) ([]release.Release, error) { return readReleases(c, releasesSQL, app) }
}

// Deployed returns a query for the IDs of the apps that have releases.
func Deployed() func(*sqlite.Conn) ([]string, error) {
	return func(c *sqlite.Conn) ([]string, error) {
		var ids []string
		err := schema.Query(c, `SELECT DISTINCT app_id FROM release_rows`, func(s *sqlite.Stmt) error {
			ids = append(ids, s.ColumnText(0))
			return nil
		})
		return ids, err
	}
}

func readReleases(c *sqlite.Conn, sql string, args ...any) ([]release.Release, error) {
	var list []release.Release
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		cell := &cells{Stmt: s}
		r := release.Release{
			ID: release.ID(s.ColumnText(0)), App: bourse.AppName(s.ColumnText(1)), AppID: s.ColumnText(2), Version: s.ColumnInt64(3),
			Status: release.Status(s.ColumnText(4)), Strategy: s.ColumnText(5), Description: s.ColumnText(6), Image: s.ColumnText(7),
			User: s.ColumnText(10), CreatedAt: cell.time(11), UpdatedAt: cell.time(12),
		}
		for column, into := range map[int]*json.RawMessage{8: &r.Definition, 9: &r.Metadata} {
			if !cell.empty(column) {
				*into = json.RawMessage(s.ColumnText(column))
			}
		}
		if r.Validate() == nil { // a release that was written by another version of the program may be invalid here
			list = append(list, r)
		}
		return nil
	}, args...)
	return list, err
}
