package sim_test

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse/sim"
)

// strategy returns the strategy with the given name.
func strategy(t *testing.T, name string) *sim.Strategy {
	t.Helper()
	for _, s := range sim.Strategies() {
		if s.Name == name {
			return &s
		}
	}
	t.Fatalf("no strategy %s", name)
	return nil
}

// TestOldViewsAndManyBrokers guards placement under realistic conditions: four brokers whose view is
// one second old place 1,000 orders per second.
func TestOldViewsAndManyBrokers(t *testing.T) {
	trace, err := sim.Openb("default")
	if err != nil {
		t.Fatal(err)
	}
	c := sim.Conditions{Brokers: 4, ViewAge: time.Second, Delay: 500 * time.Microsecond}
	o := sim.Trade(trace, sim.Steady(trace, 1000, sim.FirstSeed), strategy(t, "Bourse"), &c, sim.FirstSeed)
	if got := o.Load[100].Allocated; got < 94.5 {
		t.Errorf("allocated %.2f %% of the GPUs, want at least 94.5", got)
	}
	if o.Conflicts*100 > o.Orders {
		t.Errorf("%d of %d orders lost a claim to a conflict, want at most 1 %%", o.Conflicts, o.Orders)
	}
}

// TestFaults checks that every order is filled or refused even if messages are lost and workers die,
// and that experiments with the same seed have the same result.
func TestFaults(t *testing.T) {
	trace, arrivals := sim.Sandboxes(100, 5000, 1)
	c := sim.Conditions{Brokers: 3, ViewAge: time.Second, Delay: time.Millisecond, Loss: 0.01, Slow: 0.1, Deaths: 5}
	for _, s := range sim.Strategies() {
		first, second := sim.Trade(trace, arrivals, &s, &c, 7), sim.Trade(trace, arrivals, &s, &c, 7)
		if first != second {
			t.Errorf("%s: two experiments with the same seed differ", s.Name)
		}
		if first.Filled+first.Refused != len(arrivals) {
			t.Errorf("%s: %d orders filled and %d refused, want %d in total", s.Name, first.Filled, first.Refused, len(arrivals))
		}
		if first.Lost == 0 {
			t.Errorf("%s: no machine was lost with its worker", s.Name)
		}
	}
}
