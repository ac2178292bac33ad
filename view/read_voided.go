package view

import (
	"context"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// CancelledAt lists the workers that must not fill an order.
func (v *View) CancelledAt(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error) {
	var list []bourse.WorkerID
	err := v.read(ctx, func(c *sqlite.Conn) error {
		return query(c, cancelledAtSQL, func(s *sqlite.Stmt) error {
			if id := bourse.WorkerID(s.ColumnText(0)); id.Validate() == nil {
				list = append(list, id)
			}
			return nil
		}, string(order)+"/", string(order)+"0")
	})
	return list, err
}

const cancelledAtSQL = `SELECT worker FROM cancelled_rows WHERE key > ? AND key < ? ORDER BY key` // "0" follows "/"
