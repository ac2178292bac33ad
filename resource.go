package bourse

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MiB is an amount of memory or disk space in mebibytes.
type MiB int64

// MilliCPU is an amount of processor time, in thousandths of a core.
type MilliCPU int64

// Resource is the name of a resource. A worker's ledger contains one line for each resource.
type Resource string

// Resources that every worker has. Other resources are "gpu.<kind>", and countable resources that
// the operator has defined, such as "slots".
const (
	ResourceCPU    Resource = "cpu"    // in MilliCPU
	ResourceMemory Resource = "memory" // in MiB
	ResourceDisk   Resource = "disk"   // in MiB
)

const gpuPrefix = "gpu."

// GPUResource returns the resource for one kind of GPU.
func GPUResource(kind string) Resource { return Resource(gpuPrefix + kind) }

// IsGPU reports whether r is a kind of GPU.
func (r Resource) IsGPU() bool { return strings.HasPrefix(string(r), gpuPrefix) }

// MaxAmount is the maximum for any amount in a ledger. It is small enough that the sum of a million
// amounts cannot overflow.
const MaxAmount = math.MaxInt64 / (1 << 21)

// Amount is an amount of one resource, in the resource's unit (MilliCPU, MiB, or a plain count).
type Amount struct {
	Resource Resource `json:"resource"`
	Amount   int64    `json:"amount"`
}

// Amounts is a list of resource amounts, such as the resources that a machine uses. It is sorted
// by resource and contains each resource at most once. The zero value is an empty list.
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

// Validate returns CodeInvalid unless a is sorted, contains each resource only once, and contains
// only amounts from 0 to MaxAmount.
func (a Amounts) Validate() error {
	for i, x := range a {
		if x.Amount < 0 || x.Amount > MaxAmount {
			return Errorf(CodeInvalid, "%s: %d is out of range 0 to %d", x.Resource, x.Amount, int64(MaxAmount))
		}
		if i > 0 && a[i-1].Resource >= x.Resource {
			return Errorf(CodeInvalid, "resource %s is listed twice or out of order", x.Resource)
		}
	}
	return nil
}

// Plus adds an amount of one resource to a and returns the result. It may modify a. The sum is
// capped at MaxAmount, which is more than any worker has. If a does not contain the resource, the
// result may be unsorted.
func (a Amounts) Plus(more Amount) Amounts {
	for i, x := range a {
		if x.Resource == more.Resource {
			a[i].Amount = min(x.Amount+more.Amount, MaxAmount) // cannot overflow, because neither exceeds MaxAmount
			return a
		}
	}
	return append(a, more)
}

// Sorted sorts a by resource, in place, and returns a.
func (a Amounts) Sorted() Amounts {
	slices.SortFunc(a, func(x, y Amount) int { return strings.Compare(string(x.Resource), string(y.Resource)) })
	return a
}

// Account is one line of a worker's ledger, with amounts in the resource's unit. Total is the
// capacity, multiplied by the overcommit.
type Account struct {
	Resource Resource `json:"resource"`
	Total    int64    `json:"total"`
	Used     int64    `json:"used"`           // amount that is committed or held
	Held     int64    `json:"held,omitempty"` // part of Used that is held for reservations; set only in a worker's own report
}

// Free returns the amount that is free. It is never negative.
func (a Account) Free() int64 { return max(0, a.Total-a.Used) }

// Show formats an amount of the resource with its unit, such as "512 MiB" or "1.5 cores".
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
