package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// AppRow returns the row for an app. A deleted app keeps its row, because bourse.App.Merge needs its contents. The row
// is never replaced by a [wire.DeletedRow].
func AppRow(a bourse.App) wire.Row {
	columns := map[string]wire.Value{
		"id": cleanText(a.ID), "generation": int64(a.Generation), "org": cleanText(a.Org), "network": cleanText(a.Network),
		"created_at": nanos(a.CreatedAt), "deleted_at": nil,
	}
	if a.DeletedAt != nil {
		columns["deleted_at"] = nanos(*a.DeletedAt)
	}
	return wire.Row{Table: wire.TableApps, Key: string(a.Name), Columns: columns}
}

// appColumns lists the columns of app_rows that readApp reads.
const appColumns = `key, id, generation, org, network, created_at, deleted_at`

func readApp(r *cells) bourse.App {
	a := bourse.App{
		Name: bourse.AppName(r.ColumnText(0)), ID: r.ColumnText(1), Generation: r.ColumnInt(2), Org: r.ColumnText(3), Network: r.ColumnText(4),
		CreatedAt: r.time(5),
	}
	if !r.ColumnIsNull(6) {
		at := r.time(6)
		a.DeletedAt = &at
	}
	return a
}

const (
	appsSQL = `SELECT ` + appColumns + ` FROM app_rows ORDER BY key`
	appSQL  = `SELECT ` + appColumns + ` FROM app_rows WHERE key = ?`
)

// Apps returns a query for all apps, including deleted ones, sorted by name.
func Apps() func(*sqlite.Conn) ([]bourse.App, error) {
	return func(c *sqlite.Conn) ([]bourse.App, error) { return readApps(c, appsSQL) }
}

// App returns a query for the app with this name, even if it has been deleted. Its result is nil if there is none.
func App(name bourse.AppName) func(*sqlite.Conn) (*bourse.App, error) {
	return func(c *sqlite.Conn) (*bourse.App, error) {
		list, err := readApps(c, appSQL, string(name))
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return &list[0], nil
	}
}

func readApps(c *sqlite.Conn, sql string, args ...any) ([]bourse.App, error) {
	var list []bourse.App
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		if a := readApp(&cells{Stmt: s}); a.Name.Validate() == nil { // users cannot refer to an app with an invalid name
			list = append(list, a)
		}
		return nil
	}, args...)
	return list, err
}
