package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// samples are durations of one thing done many times.
type samples []time.Duration

// measure adds how long fn took.
func (s *samples) measure(fn func() error) error {
	begin := time.Now()
	err := fn()
	*s = append(*s, time.Since(begin))
	return err
}

// quantile returns the q-th of the samples, q from 0 to 1.
func (s samples) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// breathe pauses for a random moment: fixed pauses lock onto timers and lie.
func breathe(ctx context.Context) {
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(4 * time.Millisecond))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// together does n things with so many clients at once, and tells how many
// were done a second.
func together(clients, n int, do func(i int) error) (float64, error) {
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
		next  = make(chan int)
	)
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return float64(n) / time.Since(begin).Seconds(), first
}
