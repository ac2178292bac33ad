package inventory

import (
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// CanceledRow returns the row that prevents a worker from filling an order. A broker writes it if
// the worker may have received the claim but not the cancellation (invariant 7).
func CanceledRow(order bourse.OrderID, worker bourse.WorkerID) wire.Row {
	return wire.Row{Table: wire.TableCanceled, Key: string(order) + "/" + string(worker), Columns: map[string]wire.Value{
		"order_id": string(order), "worker": string(worker),
	}}
}

const (
	canceledSQL   = `SELECT order_id FROM canceled_rows WHERE worker = ? ORDER BY key`
	canceledAtSQL = `SELECT worker FROM canceled_rows WHERE key > ? AND key < ? ORDER BY key` // "0" is the character after "/"
)

// Canceled returns a query for the canceled orders that the worker must not fill, oldest first.
func Canceled(worker bourse.WorkerID) func(*sqlite.Conn) ([]bourse.OrderID, error) {
	return func(c *sqlite.Conn) ([]bourse.OrderID, error) {
		return readIDs[bourse.OrderID](c, canceledSQL, worker)
	}
}

// CanceledAt returns a query for the workers that must not fill the order, because it has been
// canceled there.
func CanceledAt(order bourse.OrderID) func(*sqlite.Conn) ([]bourse.WorkerID, error) {
	return func(c *sqlite.Conn) ([]bourse.WorkerID, error) {
		return readIDs[bourse.WorkerID](c, canceledAtSQL, string(order)+"/", string(order)+"0")
	}
}

// readIDs runs a query and returns the IDs in the first column of its result. It skips invalid IDs.
func readIDs[T interface {
	~string
	Validate() error
}](c *sqlite.Conn, sql string, args ...any) ([]T, error) {
	var list []T
	err := schema.Query(c, sql, func(s *sqlite.Stmt) error {
		if id := T(s.ColumnText(0)); id.Validate() == nil {
			list = append(list, id)
		}
		return nil
	}, args...)
	return list, err
}
