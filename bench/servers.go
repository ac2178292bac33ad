package main

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse/machinesapi"
)

// benchReady measures the time from a server's start until it is ready. It reports the slowest
// of ten starts.
func benchReady(ctx context.Context, lab *Lab, out Figures) error {
	slowest := time.Duration(0)
	for i := range 5 {
		b, err := lab.broker(ctx, fmt.Sprintf("broker-%d", i))
		if err != nil {
			return err
		}
		w, err := lab.worker(ctx, fmt.Sprintf("gru-%d", i), "gru", "--join", b.Ready.Gossip)
		if err != nil {
			return err
		}
		slowest = max(slowest, b.Took, w.Took)
	}
	out["ready_s"] = slowest.Seconds()
	return nil
}

// benchMemory measures the anonymous memory of an idle worker, and how much each machine
// adds.
func benchMemory(ctx context.Context, lab *Lab, out Figures) error {
	client, workers, err := lab.market(ctx, []string{"gru"})
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // wait until the memory used at startup has been released
	idle, err := workers[0].anonymous()
	if err != nil {
		return err
	}
	const machines = 500
	if err := createMany(ctx, client, machines); err != nil {
		return err
	}
	time.Sleep(time.Second)
	full, err := workers[0].anonymous()
	if err != nil {
		return err
	}
	out["anon_idle_mib"] = float64(idle) / (1 << 20)
	out["anon_per_machine_kib"] = float64(full-idle) / machines / (1 << 10)
	return nil
}

func createMany(ctx context.Context, client *machinesapi.Client, n int) error {
	_, err := together(8, n, func(int) error { _, err := client.Create(ctx, app, order("gru", 1), ""); return err })
	return err
}

// benchRecover kills the daemon of a worker with 2,000 machines, and measures the time until the
// restarted daemon reports all of them with the same PIDs. It reports the slowest of three
// restarts.
func benchRecover(ctx context.Context, lab *Lab, out Figures) error {
	client, workers, err := lab.market(ctx, []string{"gru"})
	if err != nil {
		return err
	}
	const machines = 2000
	if err := createMany(ctx, client, machines); err != nil {
		return err
	}
	before, err := startedOn(ctx, workers[0])
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
		after, err := startedOn(ctx, workers[0])
		if err != nil {
			return err
		}
		slowest = max(slowest, time.Since(begin))
		if len(after) != machines {
			return fmt.Errorf("got %d machines after the restart, want %d", len(after), machines)
		}
		for id, boot := range before {
			if after[id].PID != boot.PID {
				return fmt.Errorf("machine %s: got pid %d after the restart, want %d", id, after[id].PID, boot.PID)
			}
		}
	}
	out["recover_2000_s"] = slowest.Seconds()
	return nil
}

// benchLost kills workers one at a time, and measures the time until two brokers report each loss.
// It reports the longest of these times.
func benchLost(ctx context.Context, lab *Lab, out Figures) error {
	client, workers, err := lab.market(ctx, []string{"gru", "gru", "mad", "mad", "ord", "ord"})
	if err != nil {
		return err
	}
	second, err := lab.broker(ctx, "broker-2", "--join", workers[0].Ready.Gossip)
	if err != nil {
		return err
	}
	other := clientOf(second)
	if err := until(ctx, 10*time.Second, "the second broker knows all workers", func() bool {
		known, err := other.Workers(ctx)
		return err == nil && len(known) == len(workers)
	}); err != nil {
		return err
	}
	down := func(c *machinesapi.Client) (n int) {
		known, _ := c.Workers(ctx) // after an error, the caller tries again
		for _, w := range known {
			if w.Status == machinesapi.WorkerDown {
				n++
			}
		}
		return n
	}
	slowest := time.Duration(0)
	for i, w := range workers[:4] {
		breathe(ctx)
		w.kill()
		begin := time.Now()
		if err := until(ctx, 30*time.Second, "both brokers report the loss", func() bool {
			return down(client) == i+1 && down(other) == i+1
		}); err != nil {
			return err
		}
		slowest = max(slowest, time.Since(begin))
	}
	out["lost_worker_s"] = slowest.Seconds()
	return nil
}
