package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// benchReady: from the start of a server until it says that it is ready, the
// slowest of several.
func benchReady(ctx context.Context, lab *Lab, out Figures) error {
	slowest := time.Duration(0)
	for i := range 5 {
		b, err := lab.broker(ctx, fmt.Sprintf("broker-%d", i))
		if err != nil {
			return err
		}
		w, err := lab.worker(ctx, fmt.Sprintf("gru-%d", i), "gru", b.Ready.Gossip)
		if err != nil {
			return err
		}
		slowest = max(slowest, b.Took, w.Took)
	}
	out["ready_s"] = slowest.Seconds()
	return nil
}

// benchMemory: anonymous memory of a worker's processes (daemon and
// supervisor) when idle, and what each further machine adds to them.
func benchMemory(ctx context.Context, lab *Lab, out Figures) error {
	client, workers, err := lab.market(ctx, "gru")
	if err != nil {
		return err
	}
	w := workers[0]
	time.Sleep(2 * time.Second) // let what starting needed be given back
	idle, err := anonymous(w)
	if err != nil {
		return err
	}
	const machines = 500
	if _, err := together(4, machines, func(int) error { _, err := client.Create(ctx, app, order("gru", 1), ""); return err }); err != nil {
		return err
	}
	time.Sleep(time.Second)
	full, err := anonymous(w)
	if err != nil {
		return err
	}
	out["anon_idle_mib"] = float64(idle) / (1 << 20)
	out["anon_per_machine_kib"] = float64(full-idle) / machines / (1 << 10)
	return nil
}

// benchRecover: kill -9 of a worker's daemon with 2 000 machines, until the
// restarted one answers for all of them: nothing restarted, same pids.
func benchRecover(ctx context.Context, lab *Lab, out Figures) error {
	client, workers, err := lab.market(ctx, "gru")
	if err != nil {
		return err
	}
	const machines = 2000
	if _, err := together(8, machines, func(int) error { _, err := client.Create(ctx, app, order("gru", 1), ""); return err }); err != nil {
		return err
	}
	before, err := processes(ctx, workers[0])
	if err != nil {
		return err
	}
	slowest := time.Duration(0)
	for range 3 {
		workers[0].kill()
		begin := time.Now()
		if err := workers[0].begin(ctx, lab.binary); err != nil {
			return err
		}
		after, err := processes(ctx, workers[0])
		if err != nil {
			return err
		}
		slowest = max(slowest, time.Since(begin))
		if len(after) != machines {
			return fmt.Errorf("%d machines after the restart, want %d", len(after), machines)
		}
		for id, pid := range before {
			if after[id] != pid {
				return fmt.Errorf("machine %s had pid %d, has %d", id, pid, after[id])
			}
		}
	}
	out["recover_2000_s"] = slowest.Seconds()
	return nil
}

// down counts the workers that are known to be gone.
func down(list []machinesapi.Worker) int {
	n := 0
	for _, w := range list {
		if w.Status == machinesapi.WorkerDown {
			n++
		}
	}
	return n
}

// benchLost: SIGKILL of a worker for good, until every other server has
// noticed. Asked of two brokers.
func benchLost(ctx context.Context, lab *Lab, out Figures) error {
	client, workers, err := lab.market(ctx, "gru", "gru", "mad", "mad", "ord", "ord")
	if err != nil {
		return err
	}
	second, err := lab.broker(ctx, "broker-2", workers[0].Ready.Gossip)
	if err != nil {
		return err
	}
	other := clientOf(second)
	if err := until(ctx, 10*time.Second, "the second broker knows all", func() bool {
		known, err := other.Workers(ctx)
		return err == nil && len(known) == len(workers)
	}); err != nil {
		return err
	}
	slowest := time.Duration(0)
	for i, w := range workers[:4] {
		breathe(ctx)
		w.kill()
		begin := time.Now()
		if err := until(ctx, 30*time.Second, "the loss is known", func() bool {
			known, err := client.Workers(ctx)
			also, err2 := other.Workers(ctx)
			return err == nil && err2 == nil && down(known) == i+1 && down(also) == i+1
		}); err != nil {
			return err
		}
		slowest = max(slowest, time.Since(begin))
	}
	out["lost_worker_s"] = slowest.Seconds()
	return nil
}
