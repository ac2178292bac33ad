package balance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/balance"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// id returns the ID of machine n, which is on worker n.
func id(n int) bourse.MachineID { return bourse.MachineID(fmt.Sprintf("%06x%08x", n, n)) }

// backend returns machine n, running in gru, with a soft limit of 2 and a hard limit of 4.
func backend(n int, change ...func(*route.Backend)) route.Backend {
	b := route.Backend{
		Machine: id(n), Instance: "v1", Boot: 1, Worker: bourse.WorkerID(fmt.Sprintf("w%d", n)), Region: "gru", State: bourse.StateStarted, Reachable: true,
		Service: workload.Service{Autostart: true, Concurrency: workload.Concurrency{Soft: 2, Hard: 4}},
	}
	for _, f := range change {
		f(&b)
	}
	return b
}

func in(r bourse.Region) func(*route.Backend) { return func(b *route.Backend) { b.Region = r } }

func is(s bourse.State) func(*route.Backend) { return func(b *route.Backend) { b.State = s } }

func cordoned(b *route.Backend) { b.Cordoned = true }
func ill(b *route.Backend)      { b.Failing = "up" }
func unproven(b *route.Backend) { b.Unchecked = true }
func unheard(b *route.Backend)  { b.Reachable = false }
func spare(b *route.Backend)    { b.Standby, b.Service.Autostart = true, false }
func manual(b *route.Backend)   { b.Service.Autostart = false }

// sight returns an Input with the given loads, by machine number. A negative load means that the machine failed
// recently.
func sight(loads map[int]int) *balance.Input {
	return &balance.Input{
		Load: func(b *route.Backend) balance.Load {
			for n, l := range loads {
				if id(n) == b.Machine {
					return balance.Load{InUse: max(l, 0), Own: max(l, 0), Suspect: l < 0}
				}
			}
			return balance.Load{}
		},
		Distance: func(r bourse.Region) int { return balance.Kilometers("gru", r) },
		Rand:     rand.New(rand.NewPCG(1, 2)), //nolint:gosec // not security-sensitive
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	type machines = []route.Backend
	type loads = map[int]int
	for _, c := range []struct {
		name string
		list machines
		load loads
		want balance.Criteria
		best []int // numbers of the acceptable machines; empty: none is chosen, see how
		how  balance.Result
	}{
		{name: "none", how: balance.None},
		{name: "one", list: machines{backend(1)}, best: []int{1}},
		{name: "either", list: machines{backend(1), backend(2)}, best: []int{1, 2}},
		{name: "the less loaded", list: machines{backend(1), backend(2)}, load: loads{1: 1}, best: []int{2}},
		{name: "here rather than near", list: machines{backend(1, in("eze")), backend(2)}, load: loads{2: 1}, best: []int{2}},
		{name: "here above soft rather than near", list: machines{backend(1, in("eze")), backend(2)}, load: loads{2: 3}, best: []int{2}},
		{name: "near when here is full", list: machines{backend(1, in("eze")), backend(2), backend(3, in("ams"))}, load: loads{2: 4}, best: []int{1}},
		{name: "near when here is unhealthy", list: machines{backend(1, in("eze")), backend(2, ill), backend(3, in("ams"))}, best: []int{1}},
		{name: "far when near is full", list: machines{backend(1, in("eze")), backend(2), backend(3, in("ams"))}, load: loads{1: 4, 2: 4}, best: []int{3}},
		{name: "a known location rather than an unknown one", list: machines{backend(1, in("cellar")), backend(3, in("syd"))}, best: []int{3}},
		{name: "below soft rather than at soft", list: machines{backend(1), backend(2)}, load: loads{1: 2, 2: 1}, best: []int{2}},
		{name: "soft everywhere", list: machines{backend(1), backend(2)}, load: loads{1: 2, 2: 3}, best: []int{1}},
		{name: "full", list: machines{backend(1), backend(2)}, load: loads{1: 4, 2: 4}, how: balance.Full},
		{name: "no hard limit", list: machines{backend(1, func(b *route.Backend) { b.Service.Concurrency.Hard = 0 })}, load: loads{1: 1000}, best: []int{1}},
		{name: "cordoned", list: machines{backend(1, cordoned)}, how: balance.None},
		{name: "ill", list: machines{backend(1, ill)}, how: balance.None},
		{name: "not checked yet", list: machines{backend(1, unproven), backend(2)}, load: loads{2: 1}, best: []int{2}},
		{name: "only one not checked yet", list: machines{backend(1, unproven), backend(2, is(bourse.StateStopped))}, best: []int{1}},
		{name: "not checked yet before above soft", list: machines{backend(1, unproven), backend(2)}, load: loads{2: 2}, best: []int{1}},

		{name: "scale from zero", list: machines{backend(1, is(bourse.StateStopped))}, best: []int{1}},
		{name: "resumed rather than started", list: machines{backend(1, is(bourse.StateStopped)), backend(2, is(bourse.StateSuspended))}, best: []int{2}},
		{name: "started here rather than resumed there", list: machines{backend(1, is(bourse.StateStopped)), backend(2, is(bourse.StateSuspended), in("ams"))}, best: []int{1}},
		{name: "running there rather than started here", list: machines{backend(1, is(bourse.StateStopped)), backend(2, in("ams"))}, best: []int{2}},
		{name: "started when all have soft", list: machines{backend(1, is(bourse.StateStopped)), backend(2)}, load: loads{2: 2}, best: []int{1}},
		{name: "the one that is being started", list: machines{backend(1, is(bourse.StateStopped)), backend(2, is(bourse.StateStopped))}, load: loads{2: 1}, best: []int{2}},
		{name: "the one that others start", list: machines{backend(1, is(bourse.StateSuspended)), backend(2, is(bourse.StateStarting))}, best: []int{2}},
		{name: "the next when enough wait for one", list: machines{backend(1, is(bourse.StateStopped)), backend(2, is(bourse.StateStopped))}, load: loads{2: 2}, best: []int{1}},
		{name: "enough wait for all", list: machines{backend(1, is(bourse.StateStopped)), backend(2)}, load: loads{1: 2, 2: 3}, best: []int{2}},
		{name: "full while one starts", list: machines{backend(1, is(bourse.StateStopped))}, load: loads{1: 4}, how: balance.Full},
		{name: "stopped rather than crashing", list: machines{backend(1, is(bourse.StateRestarting)), backend(2, is(bourse.StateStopped))}, best: []int{2}},
		{name: "being replaced", list: machines{backend(1, is(bourse.StateReplacing), manual)}, best: []int{1}},
		{name: "stopping", list: machines{backend(1, is(bourse.StateStopping))}, best: []int{1}},
		{name: "created, before it is stopped", list: machines{backend(1, is(bourse.StateCreated))}, best: []int{1}},
		{name: "stopped rather than created", list: machines{backend(1, is(bourse.StateCreated)), backend(2, is(bourse.StateStopped))}, best: []int{2}},
		{name: "created, no autostart", list: machines{backend(1, is(bourse.StateCreated), manual)}, how: balance.None},
		{name: "no autostart", list: machines{backend(1, is(bourse.StateStopped), manual)}, how: balance.None},
		{name: "failed", list: machines{backend(1, is(bourse.StateFailed))}, how: balance.None},
		{name: "a spare at rest", list: machines{backend(1, is(bourse.StateStopped), spare)}, how: balance.None},
		{name: "a promoted standby", list: machines{backend(1, spare), backend(2, unheard)}, best: []int{1}},

		{name: "a suspect last", list: machines{backend(1), backend(2, in("syd"))}, load: loads{1: -1}, best: []int{2}},
		{name: "start one rather than use a suspect", list: machines{backend(1), backend(2, is(bourse.StateStopped))}, load: loads{1: -1}, best: []int{2}},
		{name: "a suspect alone", list: machines{backend(1)}, load: loads{1: -1}, best: []int{1}},
		{name: "unheard last", list: machines{backend(1, unheard), backend(2, in("syd"))}, best: []int{2}},
		{name: "unheard alone", list: machines{backend(1, unheard)}, best: []int{1}},
		{name: "wait rather than use a suspect", list: machines{backend(1), backend(2)}, load: loads{1: -1, 2: 4}, how: balance.Full},
		{name: "tried", list: machines{backend(1), backend(2, unheard)}, want: balance.Criteria{Tried: []bourse.MachineID{id(1)}}, best: []int{2}},
		{name: "on a responsive worker", list: machines{backend(1), backend(2, in("ams"))}, want: balance.Criteria{Unresponsive: map[bourse.WorkerID]time.Duration{"w1": 1}}, best: []int{2}},
		{name: "on the worker with the shortest wait", list: machines{backend(1), backend(2)}, want: balance.Criteria{
			Tried: []bourse.MachineID{id(1), id(2)}, Unresponsive: map[bourse.WorkerID]time.Duration{"w1": time.Second, "w2": time.Millisecond},
		}, best: []int{2}},
		{name: "tried, and no other", list: machines{backend(1)}, want: balance.Criteria{Tried: []bourse.MachineID{id(1)}}, best: []int{1}},

		{name: "prefer regions", list: machines{backend(1), backend(2, in("ams")), backend(3, in("syd"))}, want: balance.Criteria{Regions: [][]bourse.Region{{"lhr"}, {"syd", "nrt"}, {"ams"}}}, best: []int{3}},
		{name: "prefer a region that is full", list: machines{backend(1), backend(2, in("ams"))}, load: loads{2: 4}, want: balance.Criteria{Regions: [][]bourse.Region{{"ams"}}}, best: []int{1}},
		{name: "force a region", list: machines{backend(1), backend(2, in("ams"))}, want: balance.Criteria{Regions: [][]bourse.Region{{"ams"}}, Force: true}, best: []int{2}},
		{name: "force a region that is full", list: machines{backend(1), backend(2, in("ams"))}, load: loads{2: 4}, want: balance.Criteria{Regions: [][]bourse.Region{{"ams"}}, Force: true}, how: balance.Full},
		{name: "force a region that has none", list: machines{backend(1)}, want: balance.Criteria{Regions: [][]bourse.Region{{"ams"}}, Force: true}, how: balance.None},

		{name: "prefer a machine", list: machines{backend(1), backend(2, in("ams"))}, load: loads{2: 3}, want: balance.Criteria{Instance: id(2)}, best: []int{2}},
		{name: "prefer a stopped machine", list: machines{backend(1), backend(2, is(bourse.StateStopped))}, want: balance.Criteria{Instance: id(2)}, best: []int{2}},
		{name: "prefer a full machine", list: machines{backend(1), backend(2)}, load: loads{2: 4}, want: balance.Criteria{Instance: id(2)}, best: []int{1}},
		{name: "prefer a suspect", list: machines{backend(1), backend(2)}, load: loads{2: -1}, want: balance.Criteria{Instance: id(2)}, best: []int{1}},
		{name: "prefer a nonexistent machine", list: machines{backend(1)}, want: balance.Criteria{Instance: id(2)}, best: []int{1}},
		{name: "force a machine", list: machines{backend(1), backend(2)}, load: loads{2: -1}, want: balance.Criteria{Instance: id(2), Only: true, Tried: []bourse.MachineID{id(2)}}, best: []int{2}},
		{name: "force a full machine", list: machines{backend(1), backend(2)}, load: loads{2: 4}, want: balance.Criteria{Instance: id(2), Only: true}, how: balance.Full},
		{name: "force an unhealthy machine", list: machines{backend(1), backend(2, ill)}, want: balance.Criteria{Instance: id(2), Only: true}, how: balance.None},
		{name: "force a machine in another region", list: machines{backend(1)}, want: balance.Criteria{Instance: id(1), Only: true, Regions: [][]bourse.Region{{"ams"}}, Force: true}, how: balance.None},
	} {
		s := sight(c.load)
		seen := map[int]bool{}
		for range 50 {
			i, how := balance.Choose(c.list, &c.want, s)
			if len(c.best) == 0 {
				if how != c.how {
					t.Errorf("%s: %d, %s, want %s", c.name, i, how, c.how)
					break
				}
				continue
			}
			if how != balance.Chosen {
				t.Errorf("%s: %s, want one of %v", c.name, how, c.best)
				break
			}
			n := slices.IndexFunc(c.best, func(n int) bool { return id(n) == c.list[i].Machine })
			if n < 0 {
				t.Errorf("%s: %s, want one of %v", c.name, c.list[i].Machine, c.best)
				break
			}
			seen[n] = true
		}
		if len(seen) != len(c.best) {
			t.Errorf("%s: only %v of %v were ever chosen", c.name, seen, c.best)
		}
	}
}

// TestTwoChoices checks that the load is spread evenly over many machines.
func TestTwoChoices(t *testing.T) {
	t.Parallel()
	var list []route.Backend
	for n := range 16 {
		list = append(list, backend(n, func(b *route.Backend) { b.Service.Concurrency = workload.Concurrency{Soft: 10_000} }))
	}
	use := make([]int, len(list))
	s := &balance.Input{
		Load: func(b *route.Backend) balance.Load {
			n := slices.IndexFunc(list, func(x route.Backend) bool { return x.Machine == b.Machine })
			return balance.Load{InUse: use[n]}
		},
		Distance: func(bourse.Region) int { return 0 },
		Rand:     rand.New(rand.NewPCG(3, 4)), //nolint:gosec // not security-sensitive
	}
	for range 1600 {
		i, _ := balance.Choose(list, &balance.Criteria{}, s)
		use[i]++
	}
	if low, high := slices.Min(use), slices.Max(use); low < 95 || high > 105 { // a purely random choice would lead to loads between 70 and 130
		t.Errorf("1600 requests are distributed over 16 machines as %v", use)
	}
}

// TestChosenMayAnswer checks that a chosen machine is usable, below its limit and allowed by the criteria, and that
// such a machine is chosen if there is one.
func TestChosenMayAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		loads := map[int]int{}
		var list []route.Backend
		for n := range rapid.IntRange(0, 6).Draw(t, "machines") {
			loads[n] = rapid.IntRange(-1, 5).Draw(t, "load")
			list = append(list, backend(n, in(rapid.SampledFrom([]bourse.Region{"gru", "ams", "x"}).Draw(t, "region")), is(rapid.SampledFrom(bourse.States()).Draw(t, "state")), func(b *route.Backend) {
				b.Cordoned, b.Reachable = rapid.IntRange(0, 5).Draw(t, "cordoned") == 0, rapid.Bool().Draw(t, "heard")
				b.Service.Autostart = rapid.Bool().Draw(t, "autostart")
			}))
		}
		w := balance.Criteria{Force: rapid.Bool().Draw(t, "force"), Only: rapid.IntRange(0, 3).Draw(t, "only") == 0}
		if rapid.Bool().Draw(t, "regions") {
			w.Regions = [][]bourse.Region{{"ams"}, {"gru", "y"}}
		}
		w.Instance = rapid.SampledFrom([]bourse.MachineID{"", id(0), id(1)}).Draw(t, "instance")
		w.Tried = rapid.SampledFrom([][]bourse.MachineID{nil, {id(0)}, {id(1), id(2)}}).Draw(t, "not")
		ok := func(b *route.Backend) (may, room bool) {
			may = !b.Cordoned && (b.Running() || b.Starting() || b.Startable()) && (!w.Only || b.Machine == w.Instance) &&
				(!w.Force || len(w.Regions) > 0 && b.Region != "x")
			n := slices.IndexFunc(list, func(x route.Backend) bool { return x.Machine == b.Machine })
			return may, loads[n] < 4
		}
		i, how := balance.Choose(list, &w, sight(loads))
		switch how {
		case balance.Chosen:
			if may, room := ok(&list[i]); !may || !room {
				t.Fatalf("%+v was chosen from %+v for %+v with loads %v", list[i], list, w, loads)
			}
		default:
			for j := range list {
				if may, room := ok(&list[j]); may && (how == balance.None || room && loads[j] >= 0 && list[j].Reachable && !slices.Contains(w.Tried, list[j].Machine)) {
					t.Fatalf("%s, although %+v is usable for %+v with loads %v", how, list[j], w, loads)
				}
			}
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		var list []route.Backend
		for i := range n {
			list = append(list, backend(i))
		}
		s := sight(nil)
		b.Run(fmt.Sprintf("machines=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				balance.Choose(list, &balance.Criteria{}, s)
			}
		})
	}
}
