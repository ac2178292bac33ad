package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// samples contains the durations of repeated executions of one operation.
type samples []time.Duration

// measure runs fn and adds its duration to the samples.
func (s *samples) measure(fn func() error) error {
	begin := time.Now()
	err := fn()
	*s = append(*s, time.Since(begin))
	return err
}

// quantile returns the samples' q-quantile in milliseconds, for q from 0 to 1.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return ms(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

func (s samples) median() float64 { return s.quantile(0.5) }

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// breathe pauses for a random time. Pauses of a fixed length could synchronize with timers
// in the measured program.
func breathe(ctx context.Context) {
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(4 * time.Millisecond))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// together calls fn once for each number from 0 to n-1, with up to clients calls in progress at a
// time. It returns the number of calls per second and the first error.
func together(clients, n int, fn func(i int) error) (float64, error) {
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
				if err := fn(i); err != nil {
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

// until polls done every 2 ms until done returns true. It returns an error if the limit is exceeded
// or ctx is done first. what describes the condition in the error's text.
func until(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	begin := time.Now()
	for !done() {
		if time.Since(begin) > limit || ctx.Err() != nil {
			return fmt.Errorf("timed out after %s waiting until %s", time.Since(begin).Round(time.Millisecond), what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}
