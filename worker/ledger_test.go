package worker

import (
	"math"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

func TestCapacityRefusesNonsense(t *testing.T) {
	for name, c := range map[string]Capacity{
		"negative cpus":              {CPUs: -1},
		"CPUs that are not a number": {CPUs: math.NaN()},
		"endless cpus":               {CPUs: math.Inf(1)},
		"negative memory":            {Memory: -1},
		"memory above the maximum":   {Memory: bourse.MiB(math.MaxInt64)},
		"negative slots":             {Countables: map[string]int64{"slots": -1}},
		"a countable's bad name":     {Countables: map[string]int64{"a b": 1}},
		"overcommit below one":       {Memory: 1, Overcommit: map[string]float64{"memory": 0.5}},
		"overcommit no number":       {Memory: 1, Overcommit: map[string]float64{"memory": math.NaN()}},
		"overcommit of nothing":      {Overcommit: map[string]float64{"nothing": 2}},
		"a label and a resource":     {Countables: map[string]int64{"x": 1}, Labels: map[string]string{"x": "y"}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("Validate() = %v, want invalid", err)
			}
		})
	}
}

// The disk for a machine's log and record stays in the ledger while the machine is
// stopped, and is released when it is destroyed.
func TestStoppedMachinesTakeDisk(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Capacity.Disk, c.MachineDisk = 100, 32 })
	var ids []bourse.MachineID
	for range 3 {
		m := h.place()
		h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
		h.reaches(m.ID, bourse.StateStopped)
		ids = append(ids, m.ID)
	}
	_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t)})
	if err != nil || refusal == nil || refusal.Resource != string(bourse.ResourceDisk) || refusal.Free != 4 {
		t.Errorf("the fourth machine: %+v, %v, want a refusal because of 4 MiB of disk", refusal, err)
	}
	h.must(h.machines.Destroy(t.Context(), ids[0], fabric.MachineAction{}))
	h.place()
}
