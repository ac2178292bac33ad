package view

import (
	"context"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// Apps lists all apps by name, those that were deleted too.
func (v *View) Apps(ctx context.Context) ([]bourse.App, error) { return v.apps(ctx, appsSQL) }

// App gives an app, one that was deleted too; false when the view has none of
// this name.
func (v *View) App(ctx context.Context, name bourse.AppName) (bourse.App, bool, error) {
	list, err := v.apps(ctx, appSQL, string(name))
	if err != nil || len(list) == 0 {
		return bourse.App{}, false, err
	}
	return list[0], true, nil
}

const (
	appsSQL = `SELECT ` + appColumns + ` FROM app_rows ORDER BY key`
	appSQL  = `SELECT ` + appColumns + ` FROM app_rows WHERE key = ?`
)

func (v *View) apps(ctx context.Context, sql string, args ...any) ([]bourse.App, error) {
	var list []bourse.App
	err := v.read(ctx, func(c *sqlite.Conn) (err error) {
		list, err = readApps(c, sql, args...)
		return err
	})
	return list, err
}

func readApps(c *sqlite.Conn, sql string, args ...any) ([]bourse.App, error) {
	var list []bourse.App
	err := query(c, sql, func(s *sqlite.Stmt) error {
		if a := readApp(&cells{Stmt: s}); a.Name.Validate() == nil { // or nobody could ask for it
			list = append(list, a)
		}
		return nil
	}, args...)
	return list, err
}

// Cancelled lists the orders that a worker must not fill, the oldest first.
func (v *View) Cancelled(ctx context.Context, worker bourse.WorkerID) ([]bourse.OrderID, error) {
	var list []bourse.OrderID
	err := v.read(ctx, func(c *sqlite.Conn) (err error) {
		list, err = readCancelled(c, worker)
		return err
	})
	return list, err
}

const cancelledSQL = `SELECT order_id FROM cancelled_rows WHERE worker = ? ORDER BY key`

func readCancelled(c *sqlite.Conn, worker bourse.WorkerID) ([]bourse.OrderID, error) {
	var list []bourse.OrderID
	err := query(c, cancelledSQL, func(s *sqlite.Stmt) error {
		if id := bourse.OrderID(s.ColumnText(0)); id.Validate() == nil {
			list = append(list, id)
		}
		return nil
	}, worker)
	return list, err
}
