package admit

import (
	"github.com/bourse-dev/bourse"
)

// TaskTakes returns what a call on a warm machine takes from the ledger: the
// countables among its requirements. All else is the machine's.
func TaskTakes(order *bourse.Order) bourse.Amounts {
	var takes bourse.Amounts
	for name, r := range order.Config.Requirements {
		if r.Count > 0 {
			takes = append(takes, bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
		}
	}
	return takes.Sorted()
}

// Task returns the reasons to refuse an order for a place on a warm machine that
// no other task's end would remove.
func (h *Host) Task(order *bourse.Order) *bourse.Refusal {
	r := h.region(order)
	if r == nil {
		r = h.labels(order.Config.Requirements, h.Labels.Load().All)
	}
	return h.By(r)
}
