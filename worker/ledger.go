package worker

import (
	"fmt"

	"github.com/bourse-dev/bourse"
)

// ledger judges whether an order fits a worker. It is a value without state:
// what is committed comes from the store, in the transaction that decides.
type ledger struct {
	totals bourse.Amounts // capacity times overcommit
	shared float64        // shared vCPUs per core
	rootfs bourse.MiB     // of a machine with an image that does not say
	kept   bourse.MiB     // what the worker keeps of a machine on its disk
}

func newLedger(cfg *Config) ledger {
	c := &cfg.Capacity
	totals := c.amounts()
	for i, a := range totals {
		if a.Resource == bourse.ResourceDisk && cfg.Images != nil {
			totals[i].Amount -= int64(c.ImageBudget())
			a = totals[i]
		}
		if f, ok := c.Overcommit[string(a.Resource)]; ok {
			totals[i].Amount = int64(min(float64(a.Amount)*f, float64(bourse.MaxAmount)))
		}
	}
	l := ledger{totals: totals, shared: c.shared(), rootfs: cfg.Rootfs}
	if totals.Has(bourse.ResourceDisk) {
		l.kept = cfg.Kept
	}
	return l
}

// scratch gives what a machine of this config may write to its root file
// system, 0 for no limit.
func (l *ledger) scratch(c *bourse.Config) bourse.MiB {
	switch {
	case !bourse.InRegistry(c.Image):
		return 0
	case c.Rootfs != nil && c.Rootfs.SizeGB > 0:
		return bourse.MiB(c.Rootfs.SizeGB) << 10
	case c.Image == "": // something is held for whatever will run
		return 0
	}
	return l.rootfs
}

// running returns what a machine of this config takes while it runs: its guest,
// its scratch, what is kept of it, and the countables among its requirements.
// What a poller runs takes nothing of this host but the last two.
func (l *ledger) running(c *bourse.Config) bourse.Amounts {
	var takes bourse.Amounts
	if c.Image != bourse.ImagePull {
		takes = c.Guest.Takes(l.shared)
	}
	for name, r := range c.Requirements {
		if r.Count == 0 {
			continue
		}
		takes = takes.Plus(bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
	}
	if n := l.scratch(c) + l.kept; n > 0 {
		takes = takes.Plus(bourse.Amount{Resource: bourse.ResourceDisk, Amount: int64(n)})
	}
	return takes.Sorted()
}

// resting gives what is left of takes while the machine does not run: its
// disk.
func resting(takes bourse.Amounts) bourse.Amounts {
	if n := takes.Of(bourse.ResourceDisk); n > 0 {
		return bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: n}}
	}
	return nil
}

// settle gives back what only a running machine has.
func settle(m *bourse.Machine) {
	m.Takes, m.Boot.Port, m.Devices = resting(m.Takes), 0, nil
}

// fits tells whether takes can be added to what is committed without selling
// more than there is of anything (invariant 4); the answer names every resource
// that is short, or is nil.
func (l *ledger) fits(committed, takes bourse.Amounts) *bourse.Refusal {
	var r *bourse.Refusal
	for _, want := range takes {
		var free int64
		known := l.totals.Has(want.Resource)
		if known {
			free = l.totals.Of(want.Resource) - committed.Of(want.Resource)
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

// accounts is the ledger as others see it.
func (l *ledger) accounts(committed bourse.Amounts) []bourse.Account {
	out := make([]bourse.Account, len(l.totals))
	for i, a := range l.totals {
		out[i] = bourse.Account{Resource: a.Resource, Total: a.Amount, Used: committed.Of(a.Resource)}
	}
	return out
}
