package container

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/internal/redial"
)

// Driver runs containers through containerd. Create it with New, call Recover before anything else, and Close when
// done.
type Driver struct {
	cfg    Config
	layout layout
	images *images
	groups cgroup.Tree
	shims  func() map[string]string // returns the installed runtimes; see hostShims
	tasks  *table
	ctx    context.Context //nolint:containedctx // lifetime of the driver's goroutines, from New to Close
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // launches, watchers and cleanup; Close waits for them

	mu      sync.Mutex
	lock    *os.File // lock on the directory; held from Recover until Close
	client  *containerd.Client
	remains remains
	labels  map[string]string
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver. It does not start processes, connect to containerd or access the disk.
func New(cfg Config) *Driver {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Driver{
		cfg: cfg.withDefaults(), ctx: ctx, cancel: cancel, images: newImages(), shims: sync.OnceValue(hostShims),
		tasks: newTable(), remains: remains{tasks: map[driver.TaskID]bool{}},
	}
}

// Close stops the driver's goroutines; tasks continue to run. Calls in progress and later calls
// return CodeUnavailable.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.cancel(errClosed) // under the lock, so that no work starts after Close
	c, held := d.client, d.lock
	d.client, d.lock = nil, nil
	d.mu.Unlock()
	d.work.Wait()
	if held != nil { // remove the parent cgroup of our tasks; this fails while any of them exist
		d.groups.Remove(cgroup.PathOf(d.layout.mark(), ""))
	}
	var err error
	if c != nil && d.cfg.Client == nil {
		err = c.Close()
	}
	if held != nil {
		err = errors.Join(err, held.Close())
	}
	return err
}

// beginCall registers a goroutine or call that Close must wait for. It returns false if the driver is
// closed.
func (d *Driver) beginCall() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() == nil {
		d.work.Add(1)
	}
	return d.ctx.Err() == nil
}

// connect returns a client and a context for calls to it. The context contains the namespace, and is canceled when the
// driver is closed. The caller must call release when done. connect does not contact containerd: if containerd is
// unavailable, connect succeeds and the client's first call fails.
func (d *Driver) connect(ctx context.Context) (_ context.Context, _ *containerd.Client, release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, err
	}
	c, err := d.dial()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(namespaces.WithNamespace(ctx, d.cfg.Namespace))
	stop := context.AfterFunc(d.ctx, func() { cancel(errClosed) })
	return ctx, c, func() { stop(); cancel(nil) }, nil
}

func (d *Driver) dial() (*containerd.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return nil, errUnavailable(errClosed)
	}
	if d.client != nil {
		return d.client, nil
	}
	var err error
	if d.cfg.Client != nil {
		d.client, err = d.cfg.Client()
	} else {
		d.client, err = redial.Containerd(d.cfg.Address)
	}
	if err != nil {
		d.client = nil
		return nil, errUnavailable(err)
	}
	return d.client, nil
}

// Labels implements driver.Driver. It returns nil before Recover.
func (d *Driver) Labels() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.labels)
}

// Inspect implements driver.Driver. It reads the driver's table and does not query containerd.
func (d *Driver) Inspect(ctx context.Context, id driver.TaskID) (driver.Status, error) {
	t, err := d.find(ctx, id)
	if err != nil {
		return driver.Status{}, err
	}
	return d.tasks.status(t), nil
}

// find returns a started task. If the task is starting, find waits for it.
func (d *Driver) find(ctx context.Context, id driver.TaskID) (*task, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if d.ctx.Err() != nil {
		return nil, errUnavailable(errClosed)
	}
	t := d.tasks.task(id)
	if t == nil {
		return nil, errNoTask(id)
	}
	if err := d.await(ctx, t.started); err != nil {
		return nil, err
	}
	if t.err != nil {
		return nil, errNoTask(id)
	}
	return t, nil
}

// newTask returns a new task, which is not in the table yet.
func (d *Driver) newTask(id driver.TaskID) *task {
	return &task{
		id: id, container: d.layout.container(id),
		started: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{}),
	}
}

// await waits until ch is closed, ctx is done, or the driver is closed.
func (d *Driver) await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	default:
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ctx.Done():
		return errUnavailable(context.Cause(d.ctx))
	}
}

// Logs implements driver.Driver.
func (d *Driver) Logs(ctx context.Context, id bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error {
	if err := id.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(d.ctx, func() { cancel(errClosed) })
	defer stop()
	err := d.cfg.Keeper.Logs(ctx, id, want, line)
	if err != nil && errors.Is(context.Cause(ctx), errClosed) {
		return errUnavailable(errClosed)
	}
	return err
}
