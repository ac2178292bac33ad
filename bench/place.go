package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	bolt "go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// benchPlace measures how long it takes one client to create and start a host process through the
// API. The time is divided by the total time of one synced bbolt update, one fork and exec of the
// same program, and two round trips.
func benchPlace(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, []string{"gru", "gru"})
	if err != nil {
		return err
	}
	db, err := bolt.Open(filepath.Join(lab.dir, "floor.db"), 0o600, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	var place, sync, fork, trip samples
	for i := range 400 {
		var m machinesapi.CreatedMachine
		var pid int
		if err := place.measure(func() (err error) { m, err = client.Create(ctx, app, order("gru", 1), ""); return }); err != nil {
			return err
		}
		if m.State != bourse.StateStarted {
			return fmt.Errorf("the machine's state is %s, want started", m.State)
		}
		breathe(ctx)
		if err := sync.measure(func() error { return syncedUpdate(db, i) }); err != nil {
			return err
		}
		breathe(ctx)
		attr := &syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true}}
		if err := fork.measure(func() (err error) { pid, err = syscall.ForkExec(sleeper[0], sleeper, attr); return }); err != nil {
			return err
		}
		reap(pid)
		for range 2 {
			if err := trip.measure(func() error { _, err := client.Health(ctx); return err }); err != nil {
				return err
			}
		}
		if err := destroy(ctx, client, m.ID); err != nil {
			return err
		}
		breathe(ctx)
	}
	out["place_p50_ms"], out["place_p99_ms"] = place.median(), place.quantile(0.99)
	out["floor_fsync_ms"], out["floor_fork_ms"], out["floor_trip_ms"] = sync.median(), fork.median(), trip.median()
	out["place_p50_ratio"] = place.median() / (sync.median() + fork.median() + 2*trip.median())
	return nil
}

func destroy(ctx context.Context, client *machinesapi.Client, id bourse.MachineID) error {
	return client.Destroy(ctx, app, id, machinesapi.DestroyMachine{Force: true}, "")
}

func reap(pid int) {
	_ = syscall.Kill(pid, syscall.SIGKILL) // the process is our own child
	_, _ = syscall.Wait4(pid, nil, 0, nil)
}

// benchThroughput measures the rate at which 16 clients create machines. The rate is divided by the
// rate at which a single process without Bourse starts the same program, 16 at a time, each process
// with its own directory and limits. The two measurements alternate.
func benchThroughput(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, []string{"gru", "gru"})
	if err != nil {
		return err
	}
	const clients, machines, rounds = 16, 500, 3
	bare, err := newKernel(lab.dir)
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
		if _, err := together(clients, machines, func(i int) error { return destroy(ctx, client, ids[i]) }); err != nil {
			return err
		}
		pids := make([]int, machines)
		if rate, err = together(clients, machines, func(i int) (err error) { pids[i], err = bare.start(i); return }); err != nil {
			return err
		}
		started = append(started, rate)
		for i, pid := range pids {
			bare.remove(i, pid)
		}
	}
	out["place_rps"], out["floor_kernel_rps"] = median(placed), median(started)
	out["place_rps_ratio"] = median(placed) / median(started)
	return nil
}

// kernel starts the sleeper without Bourse, as a baseline. Each process gets only a directory and,
// on hosts with cgroup v2, limits.
type kernel struct{ dir, group string }

func newKernel(dir string) (*kernel, error) {
	k := &kernel{dir: filepath.Join(dir, "kernel")}
	if !onlyV1() {
		k.group = "/sys/fs/cgroup/bourse-bench"
	}
	return k, os.MkdirAll(k.dir, 0o755)
}

func (k *kernel) start(n int) (pid int, err error) {
	name := strconv.Itoa(n)
	attr := &syscall.ProcAttr{Dir: filepath.Join(k.dir, name), Env: os.Environ(), Sys: &syscall.SysProcAttr{Setpgid: true}}
	if err := os.Mkdir(attr.Dir, 0o755); err != nil {
		return 0, err
	}
	if k.group == "" {
		return syscall.ForkExec(sleeper[0], sleeper, attr)
	}
	group := filepath.Join(k.group, name)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return 0, err
	}
	for file, value := range map[string]string{"memory.max": "16777216", "memory.swap.max": "0", "pids.max": "1000", "cpu.weight": "100"} {
		if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) { // the file is missing if its controller is not enabled
			return 0, err
		}
	}
	return startInGroup(group, attr)
}

// remove stops a process started by start, and removes its directories.
func (k *kernel) remove(n, pid int) {
	reap(pid)
	_ = os.Remove(filepath.Join(k.dir, strconv.Itoa(n)))
	if k.group != "" {
		_ = os.Remove(filepath.Join(k.group, strconv.Itoa(n)))
		_ = os.Remove(k.group) // fails while other groups remain in it
	}
}

// benchRefuse measures how long it takes to refuse an order that no worker can fill. Its p99 is
// divided by the p99 of a round trip to the same broker.
func benchRefuse(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, []string{"gru", "gru"})
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
			return fmt.Errorf("got error %v, want a refusal", err) //nolint:errorlint // may be nil
		}
		if err := trip.measure(func() error { _, err := client.Health(ctx); return err }); err != nil {
			return err
		}
		if i%4 == 0 {
			breathe(ctx)
		}
	}
	out["refuse_p50_ms"], out["refuse_p99_ms"] = refuse.median(), refuse.quantile(0.99)
	out["floor_trip_p99_ms"] = trip.quantile(0.99)
	out["refuse_p99_ratio"] = refuse.quantile(0.99) / trip.quantile(0.99)
	return nil
}
