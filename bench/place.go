package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	bolt "go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

const app = bourse.AppName("default")

// sleeper is the program that machines run, and that the floor starts.
var sleeper = []string{"/bin/sleep", "1000"}

func order(region string, memory bourse.MiB) machinesapi.CreateMachine {
	return machinesapi.CreateMachine{Region: region, Config: &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: memory}, Init: bourse.Init{Exec: sleeper},
	}}
}

// benchPlace: create + start of a host process through the public API, one
// client, against one fsynced bbolt update + fork/exec of the same program +
// two loopback round trips.
func benchPlace(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru", "gru")
	if err != nil {
		return err
	}
	db, err := bolt.Open(filepath.Join(lab.dir, "floor.db"), 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	var place, sync, fork, trip samples
	const rounds = 400
	for i := range rounds {
		var m machinesapi.Created
		var pid int
		if err := place.measure(func() (err error) { m, err = client.Create(ctx, app, order("gru", 1), ""); return }); err != nil {
			return err
		}
		if m.State != bourse.StateStarted {
			return fmt.Errorf("the reply says %s, not started", m.State)
		}
		breathe(ctx)
		if err := sync.measure(func() error { return update(db, i) }); err != nil {
			return err
		}
		breathe(ctx)
		if err := fork.measure(func() (err error) { pid, err = spawn(); return }); err != nil {
			return err
		}
		reap(pid)
		for range 2 {
			if err := trip.measure(func() error { _, err := client.Health(ctx); return err }); err != nil {
				return err
			}
		}
		if err := client.Destroy(ctx, app, m.ID, machinesapi.DestroyMachine{Force: true}, ""); err != nil {
			return err
		}
		breathe(ctx)
	}
	floor := sync.quantile(0.5) + fork.quantile(0.5) + 2*trip.quantile(0.5)
	out["place_p50_ms"] = ms(place.quantile(0.5))
	out["place_p99_ms"] = ms(place.quantile(0.99))
	out["floor_fsync_ms"] = ms(sync.quantile(0.5))
	out["floor_fork_ms"] = ms(fork.quantile(0.5))
	out["floor_trip_ms"] = ms(trip.quantile(0.5))
	out["place_p50_ratio"] = ms(place.quantile(0.5)) / ms(floor)
	return nil
}

func update(db *bolt.DB, i int) error {
	return db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("floor"))
		if err != nil {
			return err
		}
		return b.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 512))
	})
}

func spawn() (int, error) {
	return syscall.ForkExec(sleeper[0], sleeper, &syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true}})
}

func reap(pid int) {
	_ = syscall.Kill(pid, syscall.SIGKILL) // our own child
	_, _ = syscall.Wait4(pid, nil, 0, nil)
}

// benchThroughput: the same with 16 clients, in machines a second, against
// what one process reaches by 16 at once that starts the same program with a
// directory and limits of its own and does nothing else. Rounds alternate, so
// that a noisy moment falls on both.
func benchThroughput(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru", "gru")
	if err != nil {
		return err
	}
	const clients, machines, rounds = 16, 500, 3
	bare, err := openKernel(lab.dir)
	if err != nil {
		return err
	}
	var placed, started []float64
	for range rounds {
		ids := make([]bourse.MachineID, machines)
		rate, err := together(clients, machines, func(i int) error {
			m, err := client.Create(ctx, app, order("gru", 1), "")
			ids[i] = m.ID
			return err
		})
		if err != nil {
			return err
		}
		placed = append(placed, rate)
		if _, err := together(clients, machines, func(i int) error {
			return client.Destroy(ctx, app, ids[i], machinesapi.DestroyMachine{Force: true}, "")
		}); err != nil {
			return err
		}
		pids := make([]int, machines)
		rate, err = together(clients, machines, func(i int) (err error) { pids[i], err = bare.spawn(i); return })
		if err != nil {
			return err
		}
		started = append(started, rate)
		for i, pid := range pids {
			bare.reap(i, pid)
		}
	}
	out["place_rps"] = median(placed)
	out["floor_kernel_rps"] = median(started)
	out["place_rps_ratio"] = median(placed) / median(started)
	return nil
}

// benchRefuse: an order that fits nowhere, p99, against the p99 of a loopback
// round trip to the same broker.
func benchRefuse(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru", "gru")
	if err != nil {
		return err
	}
	var refuse, trip samples
	const rounds, warm = 8000, 200
	for i := range rounds + warm {
		if i == warm {
			refuse, trip = nil, nil
		}
		err := refuse.measure(func() error { _, err := client.Create(ctx, app, order("gru", bourse.MaxMemory), ""); return err })
		if bourse.CodeOf(err) != bourse.CodeInsufficient {
			return fmt.Errorf("want a refusal, got %w", err)
		}
		if err := trip.measure(func() error { _, err := client.Health(ctx); return err }); err != nil {
			return err
		}
		if i%4 == 0 {
			breathe(ctx)
		}
	}
	out["refuse_p50_ms"] = ms(refuse.quantile(0.5))
	out["refuse_p99_ms"] = ms(refuse.quantile(0.99))
	out["floor_trip_p99_ms"] = ms(trip.quantile(0.99))
	out["refuse_p50_ratio"] = ms(refuse.quantile(0.5)) / ms(trip.quantile(0.5))
	out["refuse_p99_ratio"] = ms(refuse.quantile(0.99)) / ms(trip.quantile(0.99))
	return nil
}
