package admit

import (
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Ledger is what a worker has, and how much of it a machine takes. It is a value
// without state: what is committed comes from the store, in the transaction that
// decides.
type Ledger struct {
	Totals bourse.Amounts // capacity times overcommit
	Shared float64        // shared vCPUs per core
	Rootfs bourse.MiB     // of a machine with an image that does not say
	Kept   bourse.MiB     // what the worker keeps of a machine on its disk
}

// Scratch returns what a machine of this config may write to its root file
// system, 0 for no limit.
func (l *Ledger) Scratch(c *bourse.Config) bourse.MiB {
	switch {
	case c.ImageKind() != bourse.RegistryImage:
		return 0
	case c.Rootfs != nil && c.Rootfs.SizeGB > 0:
		return bourse.MiB(c.Rootfs.SizeGB) << 10
	case c.Image == "": // something is held for whatever will run
		return 0
	}
	return l.Rootfs
}

// Running returns what a machine of this config takes while it runs: its guest,
// its scratch, what is kept of it, and the countables among its requirements.
// What a poller runs takes nothing of this host but the last two.
func (l *Ledger) Running(c *bourse.Config) bourse.Amounts {
	var takes bourse.Amounts
	if c.ImageKind() != bourse.PollerImage {
		takes = c.Guest.Takes(l.Shared)
	}
	for name, r := range c.Requirements {
		if r.Count == 0 {
			continue
		}
		takes = takes.Plus(bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
	}
	if n := l.Scratch(c) + l.Kept; n > 0 {
		takes = takes.Plus(bourse.Amount{Resource: bourse.ResourceDisk, Amount: int64(n)})
	}
	return takes.Sorted()
}

// Resting returns what is left of takes while the machine does not run: its
// disk.
func Resting(takes bourse.Amounts) bourse.Amounts {
	if n := takes.Of(bourse.ResourceDisk); n > 0 {
		return bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: n}}
	}
	return nil
}

// Fits reports whether takes can be added to what is committed without selling
// more than there is of anything (invariant 4); the refusal names every resource
// that is short, nil when none is.
func (l *Ledger) Fits(committed, takes bourse.Amounts) *bourse.Refusal {
	var r *bourse.Refusal
	for _, want := range takes {
		var free int64
		known := l.Totals.Has(want.Resource)
		if known {
			free = l.Totals.Of(want.Resource) - committed.Of(want.Resource)
		}
		if known && want.Amount <= free { // no sum that could overflow: free is at most MaxAmount
			continue
		}
		free = max(0, free)
		detail := fmt.Sprintf("%s: wanted %s, free %s", want.Resource, want.Resource.Show(want.Amount), want.Resource.Show(free))
		switch {
		case r != nil:
			r.Also = append(r.Also, bourse.Shortage{Resource: string(want.Resource), Wanted: want.Amount, Free: free})
			r.Detail += "; " + detail
		case !known:
			r = &bourse.Refusal{
				Reason: bourse.RefusedUnknown, Resource: string(want.Resource), Wanted: want.Amount,
				Detail: fmt.Sprintf("the worker has no %s", want.Resource),
			}
		default:
			r = &bourse.Refusal{
				Reason: bourse.RefusedResource, Resource: string(want.Resource), Wanted: want.Amount, Free: free, Detail: "insufficient " + detail,
			}
		}
	}
	return r
}

// Accounts is the ledger as others see it.
func (l *Ledger) Accounts(committed bourse.Amounts) []bourse.Account {
	out := make([]bourse.Account, len(l.Totals))
	for i, a := range l.Totals {
		out[i] = bourse.Account{Resource: a.Resource, Total: a.Amount, Used: committed.Of(a.Resource)}
	}
	return out
}

// Most returns the larger of two amounts of each resource.
func Most(a, b bourse.Amounts) bourse.Amounts {
	var out bourse.Amounts
	for _, x := range a {
		out = append(out, bourse.Amount{Resource: x.Resource, Amount: max(x.Amount, b.Of(x.Resource))})
	}
	for _, x := range b {
		if !a.Has(x.Resource) {
			out = append(out, x)
		}
	}
	return out.Sorted()
}

// Least returns the smaller of two amounts of each resource.
func Least(a, b bourse.Amounts) bourse.Amounts {
	var out bourse.Amounts
	for _, x := range a {
		if n := min(x.Amount, b.Of(x.Resource)); n > 0 {
			out = append(out, bourse.Amount{Resource: x.Resource, Amount: n})
		}
	}
	return out
}

// Less returns what is committed by all but one that has taken so much.
func Less(committed, taken bourse.Amounts) bourse.Amounts {
	out := append(bourse.Amounts(nil), committed...)
	for i := range out {
		out[i].Amount -= taken.Of(out[i].Resource)
	}
	return out
}

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
