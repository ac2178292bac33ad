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

// filler gives the id of what fills the order, "" for nothing.
func (o *OrderRecord) filler() string {
	if o.Held {
		return string(o.ID)
	}
	return cmp.Or(string(o.Machine), string(o.Volume))
}

// Order gives the record of an order.
func (t *Tx) Order(id bourse.OrderID) (OrderRecord, bool, error) {
	var o OrderRecord
	ok, err := t.record(bucketOrders, []byte(id), &o)
	return o, ok, err
}

// PutOrder inserts the record of an order or replaces it. The order's id is the
// client's word: it is not trusted to tell the time.
func (t *Tx) PutOrder(o OrderRecord) error {
	k, err := key(string(o.ID))
	if err != nil {
		return err
	}
	var old OrderRecord
	ok, err := t.record(bucketOrders, k, &old)
	if err != nil {
		return err
	}
	if ok && !old.At.Equal(o.At) {
		if err := t.delete(bucketOrderTime, timeKey(old.At, string(o.ID))); err != nil {
			return err
		}
	}
	if err := t.put(bucketOrderTime, timeKey(o.At, string(o.ID)), []byte(o.filler())); err != nil {
		return err
	}
	return t.putRecord(bucketOrders, k, o)
}

// PruneOrders forgets at most most orders from before a time, oldest first,
// and tells how many. An order whose machine, volume or hold has a record is kept
// with it.
func (t *Tx) PruneOrders(before time.Time, most int) (int, error) {
	var old [][]byte
	for k, filler := range t.from(bucketOrderTime, nil) {
		if at, _ := splitTimeKey(k); !at.Before(before) || len(old) == most {
			break
		}
		if len(filler) == 0 || t.get(bucketMachines, filler) == nil && t.get(bucketVolumes, filler) == nil && t.get(bucketHolds, filler) == nil {
			old = append(old, append([]byte(nil), k...))
		}
	}
	for _, k := range old {
		_, id := splitTimeKey(k)
		if err := t.delete(bucketOrderTime, k); err != nil {
			return 0, err
		}
		if err := t.delete(bucketOrders, []byte(id)); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}
