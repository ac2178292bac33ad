package worker

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// BenchmarkClaim is what a worker adds to a start: recording the machine and
// answering, on a driver that starts programs for nothing.
func BenchmarkClaim(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(map[int]string{1: "clients=1", 16: "clients=16"}[clients], func(b *testing.B) {
			h := newHost(b, func(c *Config) { c.Capacity.CPUs, c.Capacity.Memory = 4000, 1<<30 })
			var claimed, started, next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range clients {
				wg.Go(func() {
					for next.Add(1) <= int64(b.N) {
						fill, refusal, err := h.claim(b.Context(), &bourse.Claim{Order: *newOrder(b)})
						if err != nil || refusal != nil {
							b.Errorf("refusal %+v, error %v", refusal, err)
							return
						}
						claimed.Add(int64(fill.Claimed))
						started.Add(int64(fill.Started))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(claimed.Load())/float64(b.N)/float64(time.Microsecond), "claim-µs")
			b.ReportMetric(float64(started.Load())/float64(b.N)/float64(time.Microsecond), "start-µs")
		})
	}
}
