package admit

import (
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Ledger contains a worker's total resources, and determines whether an order still fits. It does not track usage:
// callers pass the committed amounts, which they read from the store in the transaction that makes the decision.
type Ledger struct {
	Totals      bourse.Amounts // capacity times overcommit
	Shared      float64        // shared vCPUs per core
	Rootfs      bourse.MiB     // default size of a root file system; 0 for no limit
	MachineDisk bourse.MiB     // disk reserved for each machine's log and record
}

// Scratch returns how many MiB a machine with this config may write to its root file system, or 0 for no limit.
func (l *Ledger) Scratch(c *bourse.Config) bourse.MiB {
	switch {
	case c.ImageKind() != bourse.RegistryImage:
		return 0
	case c.Rootfs != nil && c.Rootfs.SizeGB > 0:
		return bourse.MiB(c.Rootfs.SizeGB) << 10
	case c.Image == "": // a hold whose config has no image
		return 0
	}
	return l.Rootfs
}

// WhileRunning returns the resources that a machine with this config takes while it runs. These are the resources of
// its guest, disk for its root file system, log and record, and the countable resources that it requires. A machine
// that a poller runs takes only the countable resources, and disk for its log and record.
func (l *Ledger) WhileRunning(c *bourse.Config) bourse.Amounts {
	amounts := Countables(c.Requirements)
	if c.ImageKind() != bourse.PollerImage {
		for _, a := range c.Guest.Takes(l.Shared) {
			amounts = amounts.Plus(a)
		}
	}
	if n := l.Scratch(c) + l.MachineDisk; n > 0 {
		amounts = amounts.Plus(bourse.Amount{Resource: bourse.ResourceDisk, Amount: int64(n)})
	}
	return amounts.Sorted()
}

// WhileStopped returns the amounts that a machine keeps while it is stopped: only its disk.
func WhileStopped(amounts bourse.Amounts) bourse.Amounts {
	if n := amounts.Of(bourse.ResourceDisk); n > 0 {
		return bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: n}}
	}
	return nil
}

// Fits returns a refusal if adding the requested amounts to the committed ones would oversell a resource (invariant 4),
// and nil otherwise. The refusal lists every shortage.
func (l *Ledger) Fits(committed, requested bourse.Amounts) *bourse.Refusal {
	var r *bourse.Refusal
	for _, want := range requested {
		var free int64
		known := l.Totals.Has(want.Resource)
		if known {
			free = l.Totals.Of(want.Resource) - committed.Of(want.Resource)
		}
		if known && want.Amount <= free { // subtract instead of adding, because a sum could overflow
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

// Accounts returns an account for each resource of the ledger, given the committed
// amounts.
func (l *Ledger) Accounts(committed bourse.Amounts) []bourse.Account {
	out := make([]bourse.Account, len(l.Totals))
	for i, a := range l.Totals {
		out[i] = bourse.Account{Resource: a.Resource, Total: a.Amount, Used: committed.Of(a.Resource)}
	}
	return out
}

// Max returns the larger of a's and b's amounts for each resource.
func Max(a, b bourse.Amounts) bourse.Amounts {
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

// Min returns the smaller of a's and b's amounts for each resource.
func Min(a, b bourse.Amounts) bourse.Amounts {
	var out bourse.Amounts
	for _, x := range a {
		if n := min(x.Amount, b.Of(x.Resource)); n > 0 {
			out = append(out, bourse.Amount{Resource: x.Resource, Amount: n})
		}
	}
	return out
}

// less returns committed minus taken.
func less(committed, taken bourse.Amounts) bourse.Amounts {
	out := append(bourse.Amounts(nil), committed...)
	for i := range out {
		out[i].Amount -= taken.Of(out[i].Resource)
	}
	return out
}

// Countables returns the countable resources among an order's requirements. A call to a warm machine takes only these,
// because the machine already has its other resources.
func Countables(requirements bourse.Requirements) bourse.Amounts {
	var amounts bourse.Amounts
	for name, r := range requirements {
		if r.Count > 0 {
			amounts = append(amounts, bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
		}
	}
	return amounts.Sorted()
}
