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

// Config is what a Driver needs.
type Config struct {
	Dir   string        // the driver's own, made when it is missing; required
	Offer time.Duration // how long a poller has to claim what it was offered before another is asked, too; default 2 s
	Lost  time.Duration // how long nothing need be heard of a claimed job's poller; default 1 min
	Log   *slog.Logger  // default: nothing is logged
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

// Driver hands tasks to pollers. Make it with Open, call Recover before
// anything else, and Run beside it.
type Driver struct {
	cfg   Config
	root  *os.Root
	fault func(stage string) error // tests: a write fails there

	mu      sync.Mutex
	offers  map[bourse.MachineID]*job // not claimed yet
	jobs    map[bourse.MachineID]*job // claimed, the latest boot of each machine
	names   map[string]*job           // both, by the name that pollers know
	pollers []*poller                 // that wait, the longest first
	hosts   map[string]*host
	used    map[string]Size // by host, of its claimed jobs that have not ended
	cancels uint64          // numbers cancellations
	news    chan struct{}   // closed and replaced when there is something to cancel
}

var _ driver.Driver = (*Driver)(nil)

// Open makes a driver. It starts nothing.
func Open(cfg Config) (*Driver, error) {
	cfg = cfg.withDefaults()
	dir := filepath.Join(cfg.Dir, jobsDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the jobs' directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the jobs' directory: %w", err)
	}
	return &Driver{
		cfg: cfg, root: root, fault: func(string) error { return nil }, offers: map[bourse.MachineID]*job{}, jobs: map[bourse.MachineID]*job{},
		names: map[string]*job{}, hosts: map[string]*host{}, used: map[string]Size{}, news: make(chan struct{}),
	}, nil
}

// Close lets go of the directory. Claimed jobs go on where their pollers are.
func (d *Driver) Close() error { return d.root.Close() }

// Recover implements driver.Driver. A job of the daemon before counts as heard
// of now.
func (d *Driver) Recover(ctx context.Context) ([]driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	records, err := d.readAll()
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "read the claimed jobs: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]driver.Status, 0, len(records))
	for i := range records {
		j := jobOf(&records[i])
		j.heard = time.Now()
		d.jobs[j.ID.Machine] = j
		if j.phase == running {
			d.take(j)
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

// Forget implements driver.Driver. It is not written down: a daemon that
// starts again is told to forget again.
func (d *Driver) Forget(ctx context.Context, id driver.TaskID) error {
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

// claimed returns the job of a task that was claimed. Its caller holds mu.
func (d *Driver) claimed(id driver.TaskID) (*job, error) {
	j := d.jobs[id.Machine]
	if j == nil || j.ID != id || j.forgotten {
		return nil, bourse.Errorf(bourse.CodeNotFound, "no job of machine %s, boot %d", id.Machine, id.Boot)
	}
	return j, nil
}

// until waits for a phase of j, or a later one.
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

// errElsewhere is the answer to what cannot be done from here.
var errElsewhere = bourse.Errorf(bourse.CodeFailedPrecondition, "the machine runs where its poller is: it has no signals, exec or usage here")

// Signal implements driver.Driver.
func (d *Driver) Signal(ctx context.Context, id driver.TaskID, _ bourse.Signal) error {
	_, err := d.Inspect(ctx, id)
	return errors.Join(err, errElsewhere)
}

// Exec implements driver.Driver.
func (d *Driver) Exec(ctx context.Context, id driver.TaskID, _ driver.Exec) (driver.ExecResult, error) {
	_, err := d.Inspect(ctx, id)
	return driver.ExecResult{}, errors.Join(err, errElsewhere)
}

// Freeze implements driver.Driver.
func (d *Driver) Freeze(ctx context.Context, id driver.TaskID, _ bool) error {
	_, err := d.Inspect(ctx, id)
	return errors.Join(err, errElsewhere)
}

// Usage implements driver.Driver.
func (d *Driver) Usage(ctx context.Context, id driver.TaskID) (driver.Usage, error) {
	_, err := d.Inspect(ctx, id)
	return driver.Usage{}, errors.Join(err, errElsewhere)
}

// Labels implements driver.Driver. Nothing is enforced here.
func (d *Driver) Labels() map[string]string { return nil }
