package network

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// BenchmarkAttach measures how long Attach delays a machine's start. Machines are attached one
// after another or 16 at a time, with spare namespaces for all of them or none. Machines of the
// previous iteration are detached outside the measurement, but the kernel may still be removing
// their networks.
func BenchmarkAttach(b *testing.B) {
	const machines = 16
	for _, spares := range []int{-1, machines} {
		for _, atOnce := range []int{1, machines} {
			b.Run(fmt.Sprintf("spares=%d/at-once=%d", max(0, spares), atOnce), func(b *testing.B) {
				w := newWorker(b, func(c *Config) { c.PooledNamespaces = spares })
				w.attach(b, machine(99, "shop", "one/"))
				w.run(b)
				var took []time.Duration
				for b.Loop() {
					eventually(func() bool { return len(w.pool.ready) == cap(w.pool.ready) })
					took = append(took, attachAll(b, w, machines, atOnce)...)
					for i := range machines {
						if err := w.Detach(b.Context(), machine(i, "shop", "one/").Machine); err != nil {
							b.Error(err)
						}
					}
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "attach-p50-ms")
				b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "attach-p90-ms")
			})
		}
	}
}

// attachAll attaches the machines and returns how long each attachment took. At most
// atOnce are attached at the same time.
func attachAll(b *testing.B, w *worker, machines, atOnce int) []time.Duration {
	took := make([]time.Duration, machines)
	gate := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range machines {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			began := time.Now()
			if _, err := w.Attach(b.Context(), machine(i, "shop", "one/")); err != nil {
				b.Error(err)
			}
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	return took
}

// BenchmarkRecover measures how long Recover delays the daemon's start.
func BenchmarkRecover(b *testing.B) {
	const machines = 100
	w := newWorker(b, nil)
	var keep []Spec
	for i := range machines {
		keep = append(keep, machine(i, "shop", fmt.Sprintf("org:%d", i%10)))
		if _, err := w.Attach(b.Context(), keep[i]); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := w.Recover(b.Context(), keep); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/machines, "µs/machine")
}

// BenchmarkQuestion measures how long the resolver takes to answer a query for a private name,
// excluding the network.
func BenchmarkQuestion(b *testing.B) {
	names, _ := market()
	r := newTestResolver(names)
	q := new(dns.Msg).SetQuestion("back.internal.", dns.TypeAAAA)
	b.ReportAllocs()
	for b.Loop() {
		r.rates = rates{}
		if m := r.handle(b.Context(), asking.address(), false, q); len(m.Answer) != 3 {
			b.Fatal(m)
		}
	}
}
