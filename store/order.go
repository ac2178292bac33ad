package store

import (
	"cmp"
	"time"

	"github.com/bourse-dev/bourse"
)

// OrderRecord is what a worker knows of an order: which machine, volume or hold
// filled it, or that none ever will, or how its task stands.
type OrderRecord struct {
	ID       bourse.OrderID   `json:"id"`
	Machine  bourse.MachineID `json:"machine,omitempty"`
	Volume   bourse.VolumeID  `json:"volume,omitempty"` // empty like Machine: only a tombstone
	Held     bool             `json:"held,omitempty"`   // a hold of the order's own id filled it
	Canceled bool             `json:"canceled,omitempty"`
	Decision bourse.Decision  `json:"decision,omitzero"` // but of a task, whose broker has it
	At       time.Time        `json:"at"`
	Task     *TaskRecord      `json:"task,omitempty"` // of an order for work; changed by the methods in task.go only
}

// filler returns the id of what fills the order, "" for nothing.
func (o *OrderRecord) filler() string {
	if o.Held {
		return string(o.ID)
	}
	return cmp.Or(string(o.Machine), string(o.Volume))
}

var orders = table[OrderRecord]{bucketOrders, orderKeys, orderAdds}

func orderKeys(o *OrderRecord) []entry {
	switch {
	case o.Task == nil:
		return []entry{{bucketOrderTime, timeKey(o.At, string(o.ID)), []byte(o.filler()), ""}}
	case o.Task.Open():
		return []entry{{bucketTaskOpen, []byte(o.ID), []byte{}, ""}}
	}
	return []entry{{bucketTaskTime, timeKey(o.At, string(o.ID)), uint64Bytes(uint64(o.Task.size())), ""}}
}

func orderAdds(o *OrderRecord) []part {
	switch {
	case o.Task == nil:
		return nil
	case o.Task.Open():
		return committed(o.Task.Takes)
	}
	return []part{{bucketMeta, keyTaskBytes, o.Task.size()}}
}

// Order returns the record of an order.
func (t *Tx) Order(id bourse.OrderID) (OrderRecord, bool, error) { return orders.get(t, []byte(id)) }

// PutOrder inserts the record of an order or replaces it. The order's id is the
// client's word: it is not trusted to tell the time.
func (t *Tx) PutOrder(o OrderRecord) error {
	k, err := key(string(o.ID))
	if err != nil {
		return err
	}
	return orders.put(t, k, &o)
}
