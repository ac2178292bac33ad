package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// AppRow says what is known of an app, its deletion too: an app's row is never
// [Gone], so that bourse.App.Merge goes on deciding.
func AppRow(a bourse.App) wire.Row {
	columns := map[string]wire.Value{
		"id": cleanText(a.ID), "life": int64(a.Life), "org": cleanText(a.Org), "network": cleanText(a.Network),
		"created_at": nanos(a.CreatedAt), "deleted_at": nil,
	}
	if a.DeletedAt != nil {
		columns["deleted_at"] = nanos(*a.DeletedAt)
	}
	return wire.Row{Table: wire.TableApps, Key: string(a.Name), Columns: columns}
}

// appColumns are those that readApp takes, of app_rows.
const appColumns = `key, id, life, org, network, created_at, deleted_at`

func readApp(r *cells) bourse.App {
	a := bourse.App{
		Name: bourse.AppName(r.ColumnText(0)), ID: r.ColumnText(1), Life: r.ColumnInt(2), Org: r.ColumnText(3), Network: r.ColumnText(4),
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

// Apps asks for all apps by name, those that were deleted too.
func Apps() func(*sqlite.Conn) ([]bourse.App, error) {
	return func(c *sqlite.Conn) ([]bourse.App, error) { return readApps(c, appsSQL) }
}

// App asks for an app, one that was deleted too; nil when there is none of this
// name.
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
		if a := readApp(&cells{Stmt: s}); a.Name.Validate() == nil { // or no one could ask for it
			list = append(list, a)
		}
		return nil
	}, args...)
	return list, err
}
