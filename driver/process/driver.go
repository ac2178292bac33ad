package process

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

// Driver runs the host's commands through a supervisor. Create it with New, call Recover before anything else, and
// Close when done.
type Driver struct {
	cfg    Config
	layout layout
	mirror mirror
	ctx    context.Context //nolint:containedctx // lifetime of the goroutines that maintain the connection, from Recover to Close
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	link   *link         // nil while no supervisor is connected
	linked chan struct{} // closed while there is a link
	child  *os.Process   // the supervisor if this process has started it, otherwise nil
	labels map[string]string
	pid    int // the supervisor's process id
	begun  bool
}

var _ driver.Driver = (*Driver)(nil)

var errClosed = errors.New("the driver is closed")

// New returns a driver. It does not start a process or access the disk.
func New(cfg Config) *Driver {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Driver{
		cfg: cfg.withDefaults(), ctx: ctx, cancel: cancel, linked: make(chan struct{}),
		mirror: mirror{tasks: map[driver.TaskID]*mirrored{}},
	}
}

// Close closes the connection and leaves the tasks running. Calls in progress and later calls
// return CodeUnavailable.
func (d *Driver) Close() error {
	d.cancel(errClosed)
	d.mu.Lock()
	if d.link != nil {
		_ = d.link.conn.Close()
	}
	if d.child != nil {
		_ = d.child.Release() // the supervisor continues to run, and its new parent will reap it
		d.child = nil
	}
	d.mu.Unlock()
	d.work.Wait()
	return nil
}

// current returns the link to the supervisor. It returns CodeUnavailable if the driver is not connected.
func (d *Driver) current() (*link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := context.Cause(d.ctx); err != nil {
		return nil, errLinkEnded(err)
	}
	if d.link == nil {
		return nil, errLinkEnded(errors.New("the supervisor is starting"))
	}
	return d.link, nil
}

// call sends a request to the supervisor and waits for the answer.
func (d *Driver) call(ctx context.Context, req *request, apply func(*reply)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l, err := d.current()
	if err != nil {
		return err
	}
	_, err = l.call(ctx, req, apply)
	return err
}

// Labels implements driver.Driver. It returns nil before Recover.
func (d *Driver) Labels() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.labels)
}

// Start implements driver.Driver.
func (d *Driver) Start(ctx context.Context, task driver.Task) (driver.Status, error) {
	if status, _, ok := d.mirror.get(task.ID); ok {
		_, err := d.current()
		return status, err
	}
	sp, err := specOf(task)
	if err != nil {
		return driver.Status{}, err
	}
	err = d.call(ctx, &request{Op: opStart, Start: sp}, func(r *reply) {
		if r.Error == nil && r.Status != nil {
			d.mirror.put(*r.Status)
		}
	})
	if err != nil {
		return driver.Status{}, err
	}
	status, _, ok := d.mirror.get(task.ID)
	if !ok { // the machine was destroyed in the meantime
		return driver.Status{}, errNoTask(task.ID)
	}
	return status, nil
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, id driver.TaskID) (driver.Status, error) {
	if err := ctx.Err(); err != nil {
		return driver.Status{}, err
	}
	status, _, ok := d.mirror.get(id)
	if ok && status.Exit != nil {
		return status, nil
	}
	if _, err := d.current(); err != nil {
		return driver.Status{}, err
	}
	if !ok {
		return driver.Status{}, errNoTask(id)
	}
	return status, nil
}

// Wait implements driver.Driver.
func (d *Driver) Wait(ctx context.Context, id driver.TaskID) (bourse.Exit, error) {
	_, done, ok := d.mirror.get(id)
	if !ok {
		if _, err := d.current(); err != nil {
			return bourse.Exit{}, err
		}
		return bourse.Exit{}, errNoTask(id)
	}
	select {
	case <-done:
	case <-ctx.Done():
		return bourse.Exit{}, ctx.Err()
	case <-d.ctx.Done():
		return bourse.Exit{}, errLinkEnded(context.Cause(d.ctx))
	}
	return d.mirror.exit(id)
}

// Signal implements driver.Driver.
func (d *Driver) Signal(ctx context.Context, id driver.TaskID, signal bourse.Signal) error {
	if err := signal.Validate(); err != nil {
		return err
	}
	err := d.call(ctx, &request{Op: opSignal, Task: id, Signal: hostSignal(signal)}, nil)
	return err
}

// Stop implements driver.Driver.
func (d *Driver) Stop(ctx context.Context, id driver.TaskID, signal bourse.Signal, timeout time.Duration) error {
	if err := signal.Validate(); err != nil {
		return err
	}
	if status, _, ok := d.mirror.get(id); ok && status.Exit != nil {
		return nil
	}
	err := d.call(ctx, &request{Op: opStop, Task: id, Signal: hostSignal(signal), Timeout: max(0, timeout)}, nil)
	return err
}

// DiscardExit implements driver.Driver.
func (d *Driver) DiscardExit(ctx context.Context, id driver.TaskID) error {
	if status, _, ok := d.mirror.get(id); !ok || status.Exit == nil {
		_, err := d.current()
		return err
	}
	err := d.call(ctx, &request{Op: opForget, Task: id}, func(*reply) { d.mirror.forget(id) })
	return err
}

// Destroy implements driver.Driver.
func (d *Driver) Destroy(ctx context.Context, id bourse.MachineID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	err := d.call(ctx, &request{Op: opDestroy, Machine: id}, func(r *reply) {
		if r.Error == nil {
			d.mirror.destroy(id)
		}
	})
	return err
}

// Shutdown stops all tasks in this directory, removes all data about their machines, terminates the supervisor, and
// closes the driver.
func (d *Driver) Shutdown(ctx context.Context) error {
	l, err := d.current()
	if err != nil {
		return err
	}
	// From here on, the supervisor may close the connection, which is not an error.
	d.cancel(errClosed)
	if _, err := l.call(ctx, &request{Op: opShutdown}, nil); err != nil {
		return errors.Join(err, d.Close())
	}
	return errors.Join(companion.AwaitEnd(ctx, d.layout.lock()), d.Close())
}

// hostSignal returns the number of a signal on this operating system.
func hostSignal(s bourse.Signal) int {
	return int(signalNumbers[s])
}

// signalNumbers maps signals to their numbers, which differ between operating systems.
var signalNumbers = map[bourse.Signal]syscall.Signal{
	"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT, "SIGABRT": syscall.SIGABRT,
	"SIGKILL": syscall.SIGKILL, "SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2, "SIGALRM": syscall.SIGALRM,
	"SIGTERM": syscall.SIGTERM, "SIGCONT": syscall.SIGCONT, "SIGSTOP": syscall.SIGSTOP, "SIGTSTP": syscall.SIGTSTP,
	"SIGWINCH": syscall.SIGWINCH,
}
