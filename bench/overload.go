package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Clients of benchOverload, each of which places its next order when the last
// was answered.
const (
	overloadFew  = 64   // as many as the cluster's best rate needs
	overloadMany = 1280 // twenty times as many
	overloadFor  = 5 * time.Second
)

// benchOverload: machines a second with twenty times as many clients as the
// cluster can serve, which come back after Retry-After as they are asked, over
// its best rate with as many as it can. Rounds alternate. Any answer but a
// machine or 429 fails.
func benchOverload(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru", "gru")
	if err != nil {
		return err
	}
	client.HTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: overloadMany}}
	client.Retries = -1 // counted here
	var best, good, shed []float64
	for range 3 {
		few, err := pressure(ctx, client, overloadFew)
		if err != nil {
			return err
		}
		many, err := pressure(ctx, client, overloadMany)
		if err != nil {
			return err
		}
		best, good, shed = append(best, few.rate), append(good, many.rate), append(shed, many.shed)
	}
	out["overload_best_rps"] = median(best)
	out["overload_good_rps"] = median(good)
	out["overload_shed_ratio"] = median(shed)
	out["overload_ratio"] = median(good) / median(best)
	return nil
}

// pressed is what came of the orders of many clients.
type pressed struct {
	rate float64 // machines a second
	shed float64 // the part of the answers that were 429
}

// pressure has n clients place orders for a while, and destroys their machines.
func pressure(ctx context.Context, client *machinesapi.Client, n int) (pressed, error) {
	var mu sync.Mutex
	var made []bourse.MachineID
	var wrong error
	var refused atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range n {
		wg.Go(func() {
			for time.Since(began) < overloadFor {
				m, err := client.Create(ctx, app, order("gru", 1), "")
				switch {
				case err == nil:
					mu.Lock()
					made = append(made, m.ID)
					mu.Unlock()
				case bourse.CodeOf(err) == bourse.CodeRateLimited:
					refused.Add(1)
					time.Sleep(time.Second) // Retry-After
				default:
					mu.Lock()
					wrong = fmt.Errorf("of %d clients: %w", n, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	_, err := together(16, len(made), func(i int) error {
		return client.Destroy(ctx, app, made[i], machinesapi.DestroyMachine{Force: true}, "")
	})
	if wrong != nil {
		err = wrong
	}
	answers := float64(len(made)) + float64(refused.Load())
	return pressed{float64(len(made)) / took.Seconds(), float64(refused.Load()) / answers}, err
}
