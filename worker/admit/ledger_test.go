package admit

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func TestFitsNamesWhatIsShort(t *testing.T) {
	l := Ledger{Totals: bourse.Amounts{
		{Resource: "cpu", Amount: 2000},
		{Resource: "disk", Amount: 100},
		{Resource: "gpu.a10", Amount: 1},
		{Resource: "memory", Amount: 1536},
		{Resource: "slots", Amount: 3},
	}}
	committed := bourse.Amounts{{Resource: "memory", Amount: 1000}, {Resource: "slots", Amount: 2}}
	for name, c := range map[string]struct {
		takes  bourse.Amounts
		reason bourse.RefusalReason
		free   int64
	}{
		"nothing":                            {nil, "", 0},
		"memory, overcommitted":              {bourse.Amounts{{Resource: "memory", Amount: 536}}, "", 0},
		"one MiB of memory too many":         {bourse.Amounts{{Resource: "memory", Amount: 537}}, bourse.RefusedResource, 536},
		"a countable":                        {bourse.Amounts{{Resource: "slots", Amount: 1}}, "", 0},
		"too many of a countable":            {bourse.Amounts{{Resource: "slots", Amount: 2}}, bourse.RefusedResource, 1},
		"a gpu":                              {bourse.Amounts{{Resource: "gpu.a10", Amount: 1}}, "", 0},
		"a gpu of another kind":              {bourse.Amounts{{Resource: "gpu.l40s", Amount: 1}}, bourse.RefusedUnknown, 0},
		"an unknown countable":               {bourse.Amounts{{Resource: "licences", Amount: 1}}, bourse.RefusedUnknown, 0},
		"more than the maximum amount":       {bourse.Amounts{{Resource: "memory", Amount: bourse.MaxAmount}}, bourse.RefusedResource, 536},
		"so much that a sum overflows int64": {bourse.Amounts{{Resource: "memory", Amount: math.MaxInt64}}, bourse.RefusedResource, 536},
		"all of the CPUs":                    {bourse.Amounts{{Resource: "cpu", Amount: 2000}}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.Fits(committed, c.takes)
			switch {
			case r == nil && c.reason != "":
				t.Errorf("fits, want refusal %s", c.reason)
			case r != nil && (r.Reason != c.reason || r.Free != c.free):
				t.Errorf("refusal %s with %d free, want %q with %d free", r.Reason, r.Free, c.reason, c.free)
			}
		})
	}
}

// Adding amounts as long as Fits allows them never exceeds a total.
func TestFitsNeverOversells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Ledger{
			Totals: bourse.Amounts{
				{Resource: "cpu", Amount: rapid.Int64Range(0, 64_000).Draw(t, "cpus")},
				{Resource: "memory", Amount: rapid.Int64Range(0, 1<<32).Draw(t, "memory")},
			},
			Shared: rapid.Float64Range(1, 64).Draw(t, "shared"),
		}
		var committed bourse.Amounts
		for range rapid.IntRange(1, 50).Draw(t, "orders") {
			g := bourse.Guest{
				CPUKind:  rapid.SampledFrom([]bourse.CPUKind{bourse.CPUShared, bourse.CPUPerformance}).Draw(t, "kind"),
				CPUs:     rapid.Int64Range(1, bourse.MaxCPUs).Draw(t, "n"),
				MemoryMB: bourse.MiB(rapid.Int64Range(1, int64(bourse.MaxMemory)).Draw(t, "mb")),
			}
			takes := l.WhileRunning(&bourse.Config{Guest: &g})
			if l.Fits(committed, takes) != nil {
				continue
			}
			for _, a := range takes {
				committed = committed.Plus(a)
			}
			for _, a := range l.Accounts(committed.Sorted()) {
				if a.Used > a.Total {
					t.Fatalf("%s: %d used of %d", a.Resource, a.Used, a.Total)
				}
			}
		}
	})
}
