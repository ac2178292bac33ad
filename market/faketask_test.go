package market_test

import (
	"time"

	"github.com/bourse-dev/bourse"
)

// run does an order's work, which takes no time. Its end is for good.
func (w *worker) run(order *bourse.Order) (*bourse.Fill, *bourse.Refusal) {
	if e := w.orders[order.ID]; e != nil && e.task != nil {
		return &bourse.Fill{Task: e.task, Again: true}, nil
	}
	if r := w.refuse(order, takes(order)); r != nil {
		return nil, r
	}
	e := &entry{runs: 1, task: &bourse.TaskResult{
		Order: order.ID, Name: order.Task.Name, Worker: w.spec.ID, Region: w.spec.Region, Machine: bourse.NewMachineID(w.tag),
		End: bourse.TaskAnswered, Answer: order.Task.Payload, StartedAt: time.Now(),
	}}
	w.orders[order.ID] = e
	return &bourse.Fill{Task: e.task}, nil
}

// Ran returns how often an order's work was done, by all workers together.
func (c *Cluster) Ran(order bourse.OrderID) int {
	n := 0
	for _, w := range c.workers {
		w.mu.Lock()
		if e := w.orders[order]; e != nil {
			n += e.runs
		}
		w.mu.Unlock()
	}
	return n
}
