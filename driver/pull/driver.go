package pull

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Config configures a Driver.
type Config struct {
	Dir   string        // the driver's directory, created if missing; required
	Offer time.Duration // how long a poller may take to claim its offer before the job is also offered to another poller; default 2 s
	Lost  time.Duration // the driver gives up a claimed job if its poller does not send a heartbeat for this long; default 1 min
	Log   *slog.Logger  // default: discards all records
}

func (c Config) withDefaults() Config {
	if c.Offer <= 0 {
		c.Offer = 2 * time.Second
	}
	if c.Lost <= 0 {
		c.Lost = time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Driver hands out tasks to pollers. Create it with Open, call Recover before anything else, and call Run in a
// goroutine.
type Driver struct {
	cfg   Config
	root  *os.Root
	fault func(stage string) error // set by tests to make a write fail at a stage

	mu      sync.Mutex
	offers  map[bourse.MachineID]*job // jobs that are not claimed yet
	jobs    map[bourse.MachineID]*job // the latest claimed boot of each machine
	names   map[string]*job           // all jobs, by the names that pollers use for them
	pollers []*poller                 // waiting pollers, longest-waiting first
	hosts   map[string]*host
	used    map[string]Size // total size of each host's claimed jobs that have not ended
	cancels uint64          // number of the latest cancellation
	changed chan struct{}   // closed and replaced to wake the callers of Cancellations and Logs
}

var _ driver.Driver = (*Driver)(nil)

// Open returns a driver. It creates the directory but does not read it or start any goroutines.
func Open(cfg Config) (*Driver, error) {
	cfg = cfg.withDefaults()
	dir := filepath.Join(cfg.Dir, jobsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "create the job directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open the job directory: %w", err)
	}
	return &Driver{
		cfg: cfg, root: root, fault: func(string) error { return nil }, offers: map[bourse.MachineID]*job{}, jobs: map[bourse.MachineID]*job{},
		names: map[string]*job{}, hosts: map[string]*host{}, used: map[string]Size{}, changed: make(chan struct{}),
	}, nil
}

// Close closes the directory. Pollers continue to run their claimed jobs.
func (d *Driver) Close() error { return d.root.Close() }

// Recover implements driver.Driver. It counts as a heartbeat for all jobs that it finds.
func (d *Driver) Recover(ctx context.Context) ([]driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	records, err := d.readAll()
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "read claimed jobs: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]driver.Status, 0, len(records))
	for i := range records {
		j := jobOf(&records[i])
		j.lastSeen = time.Now()
		d.jobs[j.ID.Machine] = j
		if j.phase == running {
			d.useCapacity(j)
		}
		if old := d.names[j.Name]; old == nil || old.phase == ended {
			d.names[j.Name] = j
		}
		out = append(out, j.status())
	}
	return out, nil
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id driver.TaskID) (driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return driver.Status{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	j, err := d.claimed(id)
	if err != nil {
		return driver.Status{}, err
	}
	return j.status(), nil
}

// Wait implements driver.Driver.
func (d *Driver) Wait(ctx context.Context, id driver.TaskID) (bourse.Exit, error) {
	d.mu.Lock()
	j, err := d.claimed(id)
	d.mu.Unlock()
	if err != nil {
		return bourse.Exit{}, err
	}
	if err := d.until(ctx, j, ended); err != nil {
		return bourse.Exit{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return *j.Exit, nil
}

// DiscardExit implements driver.Driver. It does not change the job's file: after a restart, the worker calls it again.
func (d *Driver) DiscardExit(ctx context.Context, id driver.TaskID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.jobs[id.Machine]; j != nil && j.ID == id && j.phase == ended {
		j.forgotten = true
	}
	return nil
}

// claimed returns the claimed job for a task. It returns CodeNotFound if there is no such job or its exit was
// discarded. mu must be held.
func (d *Driver) claimed(id driver.TaskID) (*job, error) {
	j := d.jobs[id.Machine]
	if j == nil || j.ID != id || j.forgotten {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no claimed job for boot %d of machine %s", id.Boot, id.Machine)
	}
	return j, nil
}

// until waits until j has reached phase want or a later phase.
func (d *Driver) until(ctx context.Context, j *job, want phase) error {
	for {
		d.mu.Lock()
		now, changed := j.phase, j.changed
		d.mu.Unlock()
		if now >= want {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errUnsupported is returned by operations that this driver cannot perform.
var errUnsupported = bourse.Errorf(bourse.CodeFailedPrecondition, "signals, exec, suspend and usage are not supported for machines that run on a poller")

// Signal implements driver.Driver.
func (d *Driver) Signal(ctx context.Context, id driver.TaskID, _ bourse.Signal) error {
	_, err := d.Inspect(ctx, id)
	return errors.Join(err, errUnsupported)
}

// Exec implements driver.Driver.
func (d *Driver) Exec(ctx context.Context, id driver.TaskID, _ driver.Exec) (driver.ExecResult, error) {
	_, err := d.Inspect(ctx, id)
	return driver.ExecResult{}, errors.Join(err, errUnsupported)
}

// Freeze implements driver.Driver.
func (d *Driver) Freeze(ctx context.Context, id driver.TaskID, _ bool) error {
	_, err := d.Inspect(ctx, id)
	return errors.Join(err, errUnsupported)
}

// Usage implements driver.Driver.
func (d *Driver) Usage(ctx context.Context, id driver.TaskID) (driver.Usage, error) {
	_, err := d.Inspect(ctx, id)
	return driver.Usage{}, errors.Join(err, errUnsupported)
}

// Labels implements driver.Driver. It returns nil, because this driver does not enforce limits.
func (d *Driver) Labels() map[string]string { return nil }
