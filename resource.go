package bourse

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MiB is an amount of memory or disk in binary megabytes.
type MiB int64

// MilliCPU is an amount of processor time: 1000 is one core.
type MilliCPU int64

// Resource names a line of a worker's ledger.
type Resource string

// The resources of every worker. Others are "gpu.<kind>" and the operator's countables,
// such as "slots".
const (
	ResourceCPU    Resource = "cpu"    // MilliCPU
	ResourceMemory Resource = "memory" // MiB
	ResourceDisk   Resource = "disk"   // MiB
)

const gpuPrefix = "gpu."

// GPUResource names the ledger's line for one kind of gpu.
func GPUResource(kind string) Resource { return Resource(gpuPrefix + kind) }

// MaxAmount limits every amount in a ledger, so that the sum of a million amounts cannot
// overflow.
const MaxAmount = math.MaxInt64 / (1 << 21)

// Amount is an amount of one resource, in its own unit (MilliCPU, MiB, or pieces).
type Amount struct {
	Resource Resource `json:"resource"`
	Amount   int64    `json:"amount"`
}

// Amounts lists amounts of resources, such as those of a machine: sorted by resource,
// each resource once. The zero value is empty.
type Amounts []Amount

// Of returns the amount of r, or 0 if a does not contain r.
func (a Amounts) Of(r Resource) int64 {
	for _, x := range a {
		if x.Resource == r {
			return x.Amount
		}
	}
	return 0
}

// Has reports whether a contains r.
func (a Amounts) Has(r Resource) bool {
	return slices.ContainsFunc(a, func(x Amount) bool { return x.Resource == r })
}

// Validate returns CodeInvalid unless a is sorted, contains each resource once, and every
// amount is from 0 to MaxAmount.
func (a Amounts) Validate() error {
	for i, x := range a {
		if x.Amount < 0 || x.Amount > MaxAmount {
			return Errorf(CodeInvalid, "%s: %d is out of range 0 to %d", x.Resource, x.Amount, int64(MaxAmount))
		}
		if i > 0 && a[i-1].Resource >= x.Resource {
			return Errorf(CodeInvalid, "resource %s is named twice or out of order", x.Resource)
		}
	}
	return nil
}

// Plus returns a with an amount of a resource added; it may modify a. The sum is at most
// MaxAmount, which no worker has.
func (a Amounts) Plus(more Amount) Amounts {
	for i, x := range a {
		if x.Resource == more.Resource {
			a[i].Amount = min(x.Amount+more.Amount, MaxAmount) // neither is above MaxAmount: no overflow
			return a
		}
	}
	return append(a, more)
}

// Sorted sorts a by resource in place, and returns it.
func (a Amounts) Sorted() Amounts {
	slices.SortFunc(a, func(x, y Amount) int { return strings.Compare(string(x.Resource), string(y.Resource)) })
	return a
}

// Account is one line of a worker's ledger, in the resource's own unit. Total is capacity
// times overcommit.
type Account struct {
	Resource Resource `json:"resource"`
	Total    int64    `json:"total"`
	Used     int64    `json:"used"`           // committed and held
	Held     int64    `json:"held,omitempty"` // of Used, by reservations; told where a worker speaks of itself
}

// Free returns the free amount, which is never negative.
func (a Account) Free() int64 { return max(0, a.Total-a.Used) }

// Show formats n of r with its unit: "512 MiB", "1.5 cores".
func (r Resource) Show(n int64) string {
	switch r {
	case ResourceMemory, ResourceDisk:
		return fmt.Sprintf("%d MiB", n)
	case ResourceCPU:
		if n == 1000 {
			return "1 core"
		}
		return fmt.Sprintf("%g cores", float64(n)/1000)
	}
	return fmt.Sprint(n)
}
