package store

import (
	"cmp"
	"time"

	"github.com/bourse-dev/bourse"
)

// OrderRecord is a worker's record of an order. It names the machine, volume or hold that filled
// the order, or contains the order's cancellation or the state of its task.
type OrderRecord struct {
	ID       bourse.OrderID   `json:"id"`
	Machine  bourse.MachineID `json:"machine,omitempty"`
	Volume   bourse.VolumeID  `json:"volume,omitempty"` // in a tombstone, both Machine and Volume are empty
	Held     bool             `json:"held,omitempty"`   // whether a hold with the order's ID has filled the order
	Canceled bool             `json:"canceled,omitempty"`
	Decision bourse.Decision  `json:"decision,omitzero"` // not set for a task: only the task's broker knows it
	At       time.Time        `json:"at"`
	Task     *TaskRecord      `json:"task,omitempty"` // set for an order for a task; changed only by the methods in task.go
}

// fillID returns the id of the machine, volume or hold that filled the order, or "" if there is
// none.
func (o *OrderRecord) fillID() string {
	if o.Held {
		return string(o.ID)
	}
	return cmp.Or(string(o.Machine), string(o.Volume))
}

var orders = table[OrderRecord]{bucketOrders, orderKeys, orderSums}

func orderKeys(o *OrderRecord) []entry {
	switch {
	case o.Task == nil:
		return []entry{{bucketOrderTime, timeKey(o.At, string(o.ID)), []byte(o.fillID()), ""}}
	case o.Task.Open():
		return []entry{{bucketTaskOpen, []byte(o.ID), []byte{}, ""}}
	}
	return []entry{{bucketTaskTime, timeKey(o.At, string(o.ID)), uint64Bytes(uint64(o.Task.size())), ""}}
}

func orderSums(o *OrderRecord) []sumPart {
	switch {
	case o.Task == nil:
		return nil
	case o.Task.Open():
		return committed(o.Task.Takes)
	}
	return []sumPart{{bucketMeta, keyTaskBytes, o.Task.size()}}
}

// Order returns an order's record, and whether it exists.
func (t *Tx) Order(id bourse.OrderID) (OrderRecord, bool, error) { return orders.get(t, []byte(id)) }

// PutOrder inserts or replaces an order's record. The record's At determines the order's age; the
// timestamp in the order's id does not, because clients may choose the id.
func (t *Tx) PutOrder(o OrderRecord) error {
	k, err := key(string(o.ID))
	if err != nil {
		return err
	}
	return orders.put(t, k, &o)
}
