package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// benchSlots: 100 000 tasks over NATS, 16 clients, two brokers and two workers
// with ten slots each, of which one is killed every now and then. At the end
// no slot may be taken.
func benchSlots(ctx context.Context, lab *Lab, out Figures) error {
	return inHarness(ctx, lab, func(h *harness) error {
		program, err := buildIncrement(ctx, lab)
		if err != nil {
			return err
		}
		y, err := taskMarket(h, lab, program, true)
		if err != nil {
			return err
		}
		second, err := lab.start(ctx, "n-broker-2", "serve", "broker", "--cluster", "bench-n", "--listen", "127.0.0.1:0", "--log-level", "error", "--nats", y.nats)
		if err != nil {
			return err
		}
		y.brokers = append(y.brokers, second)
		return y.storm(out)
	})
}

// storm has the tasks done and kills servers meanwhile.
func (y *taskYard) storm(out Figures) error {
	const tasks, clients = 100_000, 16
	apis := make([]*machinesapi.Client, len(y.brokers))
	for i, b := range y.brokers {
		b.args = append(b.args, "--listen", b.Ready.API) // where it comes back
		apis[i] = clientOf(b)
	}
	var answered, other atomic.Int64
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(y.ctx)
	defer stop()
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil && answered.Load() < tasks {
				reply, err := apis[rand.IntN(len(apis))].RunTask(ctx, app, machinesapi.RunTask{
					Task: taskName, Payload: payload, Region: "gru", Requirements: bourse.Requirements{"slots": {Count: 1}},
				}, "")
				if err == nil && reply.OK {
					answered.Add(1)
					continue
				}
				other.Add(1)
				breathe(ctx) // as a client backs off
			}
		})
	}
	kills, err := y.killAtRandom(func() bool { return answered.Load() >= tasks })
	stop()
	wg.Wait()
	if err != nil {
		return err
	}
	out["storm_tasks_s"] = float64(answered.Load()) / time.Since(begin).Seconds()
	out["storm_kills"] = float64(kills)
	out["storm_not_answered"] = float64(other.Load())
	taken := int64(-1)
	_ = until(y.ctx, 10*time.Second, "all slots are back", func() bool { taken = y.slotsTaken(); return taken == 0 })
	out["slots_lost_per_100k"] = float64(taken)
	return nil
}

// killAtRandom kills a random server, again and again, and starts it again.
func (y *taskYard) killAtRandom(done func() bool) (kills int, err error) {
	victims := append(append([]*Server(nil), y.workers...), y.brokers...)
	for {
		next := time.Now().Add(time.Second + rand.N(3*time.Second))
		for time.Now().Before(next) {
			if done() || y.ctx.Err() != nil {
				return kills, y.ctx.Err()
			}
			breathe(y.ctx)
		}
		v := victims[rand.IntN(len(victims))]
		v.kill()
		if err := v.begin(y.ctx, y.lab.binary); err != nil {
			return kills, fmt.Errorf("after kill %d: %w", kills, err)
		}
		kills++
	}
}

// slotsTaken asks all workers; -1 while one does not answer.
func (y *taskYard) slotsTaken() int64 {
	known, err := y.api.Workers(y.ctx)
	if err != nil || len(known) != len(y.workers) {
		return -1
	}
	sum := int64(0)
	for _, w := range known {
		if w.Facts == nil {
			return -1
		}
		for _, a := range w.Facts.Accounts {
			if a.Resource == "slots" {
				sum += a.Used
			}
		}
	}
	return sum
}
