package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse/sim"
)

// sections lists the experiments in the order of their sections in docs/placement.md.
var sections = []struct {
	name string
	run  func(seeds int) (*result, error)
}{
	{"paper", paper},
	{"brokers", brokers},
	{"views", views},
	{"sandboxes", sandboxes},
	{"waves", waves},
	{"scale", scale},
}

// full is the load at which the paper reports its figures, as a percentage of the cluster's GPUs.
const full = 100

// paper compares the published figures with the results of policies that have perfect information.
func paper(seeds int) (*result, error) {
	r := &result{plots: map[string]plot{}}
	t := table{header: []string{"Policy"}}
	policies := append(sim.Paper(), sim.Bourse()...)
	rows := make([][]string, len(policies))
	for _, workload := range sim.Workloads() {
		trace, err := sim.Openb(workload)
		if err != nil {
			return nil, err
		}
		published, err := sim.Published(workload)
		if err != nil {
			return nil, err
		}
		t.header = append(t.header, workload, "published")
		fragmented := plot{title: "Fragmented GPUs, workload " + workload, x: "arrived load, % of all GPUs", y: "% of all GPUs"}
		for i, p := range policies {
			mean := sim.Mean(trace, &p, seeds)
			rows[i] = append(rows[i], show(mean[full]), show(meanOf(published[p.Name])))
			line := series{name: p.Name}
			for load, f := range mean {
				line.points = append(line.points, point{float64(load), f.Fragmented})
			}
			fragmented.lines = append(fragmented.lines, line)
		}
		if workload == "default" {
			r.plots["placement-fragmented.svg"] = fragmented
		}
	}
	for i, p := range policies {
		t.add(append([]string{p.Name}, rows[i]...)...)
	}
	r.tables = []table{t}
	return r, nil
}

// meanOf averages a policy's published figures over all seeds.
func meanOf(figures map[int64]sim.Figure) sim.Figure {
	var mean sim.Figure
	for seed := range int64(len(figures)) { // in a fixed order, so that rounding errors are always the same
		f := figures[sim.FirstSeed+seed]
		mean.Allocated += f.Allocated / float64(len(figures))
		mean.Fragmented += f.Fragmented / float64(len(figures))
	}
	return mean
}

func show(f sim.Figure) string {
	if f == (sim.Figure{}) {
		return "–"
	}
	return fmt.Sprintf("%.2f / %.2f", f.Allocated, f.Fragmented)
}

// lan describes brokers and workers in one data center.
func lan() sim.Conditions {
	return sim.Conditions{Brokers: 4, ViewAge: time.Second, Delay: 500 * time.Microsecond}
}

const (
	perSecond = 1000 // orders that arrive per second in experiments with openb
	mostSeeds = 3    // maximum number of seeds for these experiments, whose figures vary less from seed to seed than those of the policies
)

// brokers compares the strategies when concurrent brokers place the openb trace's orders.
func brokers(seeds int) (*result, error) {
	trace, err := sim.Openb("default")
	if err != nil {
		return nil, err
	}
	t := table{header: []string{"Strategy", "allocated / fragmented", "lost to conflicts", "requests per order", "p50", "p99", "hottest worker"}}
	for _, s := range sim.Strategies() {
		o := sim.MeanTrade(min(seeds, mostSeeds), func(seed int64) sim.Outcome {
			c := lan()
			return sim.Trade(trace, sim.Steady(trace, perSecond, seed), &s, &c, seed)
		})
		t.add(append([]string{s.Name, show(o.Load[full])}, market(&o)...)...)
	}
	return &result{tables: []table{t}}, nil
}

// market returns the table cells that describe how the orders were placed.
func market(o *sim.Outcome) []string {
	n := float64(o.Orders)
	return []string{
		fmt.Sprintf("%.2f %%", 100*float64(o.Conflicts)/n), fmt.Sprintf("%.1f", float64(o.Messages)/n),
		millis(o.P50), millis(o.P99), fmt.Sprintf("%.2f", o.Hottest),
	}
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// views compares how the view's age affects two strategies.
func views(seeds int) (*result, error) {
	trace, err := sim.Openb("default")
	if err != nil {
		return nil, err
	}
	ages := []time.Duration{0, 100 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second}
	t := table{header: []string{"Strategy"}}
	for _, age := range ages {
		t.header = append(t.header, age.String())
	}
	p := plot{title: "Allocated GPUs by the age of the view", x: "age of the view, seconds", y: "% of all GPUs"}
	for _, s := range sim.Strategies() {
		if s.Name != "Bourse" && s.Name != "Omega, best fit" {
			continue
		}
		row, line := []string{s.Name}, series{name: s.Name}
		for _, age := range ages {
			o := sim.MeanTrade(min(seeds, mostSeeds), func(seed int64) sim.Outcome {
				c := lan()
				c.ViewAge = age
				return sim.Trade(trace, sim.Steady(trace, perSecond, seed), &s, &c, seed)
			})
			row = append(row, fmt.Sprintf("%.2f (%.1f %%)", o.Load[full].Allocated, 100*float64(o.Conflicts)/float64(o.Orders)))
			line.points = append(line.points, point{age.Seconds(), o.Load[full].Allocated})
		}
		t.add(row...)
		p.lines = append(p.lines, line)
	}
	return &result{tables: []table{t}, plots: map[string]plot{"placement-views.svg": p}}, nil
}

// Size of the experiments with synthetic workloads.
const (
	hosts  = 1000
	orders = 100_000
)

func sandboxes(int) (*result, error) { return synthetic(sim.Sandboxes) }

func waves(int) (*result, error) { return synthetic(sim.Waves) }

// synthetic compares the strategies on a synthetic workload: without faults, with slow workers, and
// with lost messages and dying workers.
func synthetic(generate func(hosts, orders int, seed int64) (*sim.Trace, []sim.Arrival)) (*result, error) {
	trace, arrivals := generate(hosts, orders, sim.FirstSeed)
	good := lan()
	slow, faulty := good, good
	slow.Slow = 0.1
	faulty.Loss, faulty.Deaths = 0.001, 10
	all := []sim.Conditions{good, slow, faulty}
	t := table{header: []string{"Strategy", "refused", "lost to conflicts", "requests per order", "p50", "p99", "hottest worker", "p99, 10 % slow workers", "p99, faults"}}
	for _, s := range sim.Strategies() {
		o := sim.Parallel(len(all), func(i int) sim.Outcome { return sim.Trade(trace, arrivals, &s, &all[i], sim.FirstSeed) })
		row := append([]string{s.Name, percent(o[0].Refused, o[0].Orders)}, market(&o[0])...)
		t.add(append(row, millis(o[1].P99), millis(o[2].P99))...)
	}
	return &result{tables: []table{t}}, nil
}

func percent(n, of int) string { return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(of)) }

// scale places a million machines on 10,000 workers.
func scale(int) (*result, error) {
	trace, arrivals := sim.Sandboxes(10_000, 1_000_000, sim.FirstSeed)
	t := table{header: []string{"Strategy", "orders", "refused", "lost to conflicts", "requests per order", "p50", "p99", "hottest worker"}}
	c := lan()
	s := sim.Strategies()[0]
	o := sim.Trade(trace, arrivals, &s, &c, sim.FirstSeed)
	t.add(append([]string{s.Name, strconv.Itoa(o.Orders), percent(o.Refused, o.Orders)}, market(&o)...)...)
	return &result{tables: []table{t}}, nil
}
