package market

import (
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestVetFills checks that a fill in a quote counts only if it belongs to the order and matches
// what was ordered. Otherwise, all of the quote's contents are dropped.
func TestVetFills(t *testing.T) {
	const id, worker = bourse.OrderID("01JD3V7K7Y5C5ZQ7W1R2M3N4P6"), bourse.WorkerID("w1")
	fills := map[string]func(*bourse.Quote, bourse.OrderID){
		"machine": func(q *bourse.Quote, o bourse.OrderID) {
			q.Filled = &bourse.Machine{Order: o, Worker: worker, Region: "gru"}
		},
		"volume": func(q *bourse.Quote, o bourse.OrderID) {
			q.FilledVolume = &bourse.Volume{Order: o, Worker: worker, Region: "gru"}
		},
		"task": func(q *bourse.Quote, o bourse.OrderID) {
			q.FilledTask = &bourse.TaskResult{Order: o, Worker: worker, Region: "gru"}
		},
		"hold": func(q *bourse.Quote, o bourse.OrderID) {
			q.FilledHold = &bourse.Hold{Order: o, Worker: worker, Region: "gru"}
		},
	}
	orders := map[string]bourse.Order{
		"machine": {}, "volume": {Volume: &bourse.VolumeOrder{}}, "task": {Task: &bourse.TaskOrder{}}, "hold": {Hold: &bourse.HoldOrder{}},
	}
	m := &bourse.Member{ID: worker, Region: "gru"}
	for kind, order := range orders {
		order.ID, order.Regions = id, []bourse.Choice{{"gru"}}
		for given, fill := range fills {
			for _, of := range []bourse.OrderID{id, "01JD3V7K7Y5C5ZQ7W1R2M3N4P7"} {
				q := bourse.Quote{Worker: worker, Region: "gru"}
				fill(&q, of)
				checkQuote(&q, m, &order, order.Regions[0])
				if good := of == id && kind == given; (q.Fill() != nil) != good || (q.Refusal == nil) != good {
					t.Errorf("an order for a %s, a %s of order %s: fill %t, refusal %v", kind, given, of, q.Fill() != nil, q.Refusal)
				}
			}
			q := bourse.Quote{Worker: worker, Region: "gru", Refusal: &bourse.Refusal{Worker: worker, Region: "gru", Reason: bourse.RefusedResource}}
			fill(&q, id)
			if checkQuote(&q, m, &order, order.Regions[0]); q.Fill() != nil {
				t.Errorf("a refusal with a %s counts as a fill", given)
			}
		}
	}
}
