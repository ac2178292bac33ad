package view

import "github.com/bourse-dev/bourse"

// CancelledRow says that a worker must not fill an order: it may have been
// claimed there, and the worker could not be told of its end (invariant 7).
func CancelledRow(order bourse.OrderID, worker bourse.WorkerID) Row {
	return Row{Table: TableCancelled, Key: string(order) + "/" + string(worker), Columns: map[string]Value{
		"order_id": string(order), "worker": string(worker),
	}}
}

// Gone says that a row is deleted. Apps are not: their deletion is part of
// their row.
func Gone(table, key string) Row { return Row{Table: table, Key: key, Deleted: true} }
