package worker

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/warm"
)

// BenchmarkClaim measures a claim up to the worker's answer, with a driver whose
// machines start instantly.
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

// BenchmarkTask measures tasks of a warm machine, eight at a time. For each task, the
// worker checks whether the order is new, records it, calls a program that echoes the
// payload, and records the result.
func BenchmarkTask(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- warm.Serve(ctx, ln, 0, func(_ context.Context, c *warm.Call) warm.Answer {
			return warm.Answer{Status: http.StatusOK, Body: c.Payload}
		})
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			b.Error(err)
		}
	}()
	h := newHost(b, nil)
	h.place((&program{Listener: ln, Protocol: bourse.TaskFrames}).Warmed("echo", 8))
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range 8 {
		wg.Go(func() {
			for next.Add(1) <= int64(b.N) {
				if _, refusal, err := h.claim(b.Context(), &bourse.Claim{Order: *call(b, "echo", 1)}); err != nil || refusal != nil {
					b.Errorf("refusal %+v, error %v", refusal, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
