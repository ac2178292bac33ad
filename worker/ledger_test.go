package worker

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

func TestFitsNamesWhatIsShort(t *testing.T) {
	l := newLedger(&Config{Capacity: Capacity{
		CPUs: 2, Memory: 1024, Disk: 100, GPUs: map[string]int64{"a10": 1}, Countables: map[string]int64{"slots": 3},
		Overcommit: map[string]float64{"shared": 8, "memory": 1.5},
	}})
	committed := bourse.Amounts{{Resource: "memory", Amount: 1000}, {Resource: "slots", Amount: 2}}
	for name, c := range map[string]struct {
		takes  bourse.Amounts
		reason bourse.RefusalReason
		free   int64
	}{
		"nothing":                  {nil, "", 0},
		"memory, overcommitted":    {bourse.Amounts{{Resource: "memory", Amount: 536}}, "", 0},
		"memory, one too much":     {bourse.Amounts{{Resource: "memory", Amount: 537}}, bourse.RefusedResource, 536},
		"a countable":              {bourse.Amounts{{Resource: "slots", Amount: 1}}, "", 0},
		"a countable, too many":    {bourse.Amounts{{Resource: "slots", Amount: 2}}, bourse.RefusedResource, 1},
		"a gpu":                    {bourse.Amounts{{Resource: "gpu.a10", Amount: 1}}, "", 0},
		"a gpu of another kind":    {bourse.Amounts{{Resource: "gpu.l40s", Amount: 1}}, bourse.RefusedUnknown, 0},
		"an unknown countable":     {bourse.Amounts{{Resource: "licences", Amount: 1}}, bourse.RefusedUnknown, 0},
		"more than there can be":   {bourse.Amounts{{Resource: "memory", Amount: bourse.MaxAmount}}, bourse.RefusedResource, 536},
		"more than any int64 sum":  {bourse.Amounts{{Resource: "memory", Amount: math.MaxInt64}}, bourse.RefusedResource, 536},
		"cpus to the last of them": {bourse.Amounts{{Resource: "cpu", Amount: 2000}}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := l.fits(committed, c.takes)
			switch {
			case r == nil && c.reason != "":
				t.Errorf("fits, want refusal %s", c.reason)
			case r != nil && (r.Reason != c.reason || r.Free != c.free):
				t.Errorf("refused %s with %d free, want %q with %d free", r.Reason, r.Free, c.reason, c.free)
			}
		})
	}
}

// Whatever is added as long as it fits, no total is ever passed.
func TestFitsNeverOversells(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(&Config{Capacity: Capacity{
			CPUs:       rapid.Float64Range(0, 64).Draw(t, "cpus"),
			Memory:     bourse.MiB(rapid.Int64Range(0, 1<<30).Draw(t, "memory")),
			Overcommit: map[string]float64{"shared": rapid.Float64Range(1, 64).Draw(t, "shared"), "memory": rapid.Float64Range(1, 4).Draw(t, "factor")},
		}})
		var committed bourse.Amounts
		for range rapid.IntRange(1, 50).Draw(t, "orders") {
			g := bourse.Guest{
				CPUKind:  rapid.SampledFrom([]bourse.CPUKind{bourse.CPUShared, bourse.CPUPerformance}).Draw(t, "kind"),
				CPUs:     rapid.Int64Range(1, bourse.MaxCPUs).Draw(t, "n"),
				MemoryMB: bourse.MiB(rapid.Int64Range(1, int64(bourse.MaxMemory)).Draw(t, "mb")),
			}
			takes := l.running(&bourse.Config{Guest: &g})
			if l.fits(committed, takes) != nil {
				continue
			}
			for _, a := range takes {
				committed = committed.Plus(a)
			}
			for _, a := range l.accounts(committed.Sorted()) {
				if a.Used > a.Total {
					t.Fatalf("%s: %d used of %d", a.Resource, a.Used, a.Total)
				}
			}
		}
	})
}

func TestCapacityRefusesNonsense(t *testing.T) {
	for name, c := range map[string]Capacity{
		"negative cpus":          {CPUs: -1},
		"no number of cpus":      {CPUs: math.NaN()},
		"endless cpus":           {CPUs: math.Inf(1)},
		"negative memory":        {Memory: -1},
		"memory past the bound":  {Memory: bourse.MiB(math.MaxInt64)},
		"negative slots":         {Countables: map[string]int64{"slots": -1}},
		"a countable's bad name": {Countables: map[string]int64{"a b": 1}},
		"overcommit below one":   {Memory: 1, Overcommit: map[string]float64{"memory": 0.5}},
		"overcommit no number":   {Memory: 1, Overcommit: map[string]float64{"memory": math.NaN()}},
		"overcommit of nothing":  {Overcommit: map[string]float64{"nothing": 2}},
		"a label and a resource": {Countables: map[string]int64{"x": 1}, Labels: map[string]string{"x": "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("Validate() = %v, want invalid", err)
			}
		})
	}
}

// What is kept of machines on disk is in the ledger as long as they exist:
// stopped ones fill it, and destroyed ones give it back.
func TestStoppedMachinesFillTheLedger(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Capacity.Disk, c.Kept = 100, 32 })
	var ids []bourse.MachineID
	for range 3 {
		m := h.place()
		h.must(h.Worker.stop(t.Context(), m.ID, fabric.Act{}))
		h.reaches(m.ID, bourse.StateStopped)
		ids = append(ids, m.ID)
	}
	_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t)})
	if err != nil || refusal == nil || refusal.Resource != string(bourse.ResourceDisk) || refusal.Free != 4 {
		t.Errorf("the fourth: %+v, %v, want a refusal for 4 MiB of disk", refusal, err)
	}
	h.must(h.destroy(t.Context(), ids[0], fabric.Act{}))
	h.place()
}
