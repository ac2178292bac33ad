package logs

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/companion"
)

// Source is where the output of one boot of a machine comes from.
type Source struct {
	Machine bourse.MachineID `json:"machine"`
	Boot    int              `json:"boot"`             // 1 or more
	Stdout  string           `json:"stdout"`           // path of a FIFO, which exists
	Stderr  string           `json:"stderr,omitempty"` // likewise; "" with a terminal, whose output is one stream
}

// KeeperConfig is what a Keeper needs. Dir and Command are required.
type KeeperConfig struct {
	// Dir is the keeper's own directory, made when it is missing.
	Dir string
	// Command is the command that runs Keep; Dir is added to it as its last
	// argument: {"/proc/self/exe", "keeper"}.
	Command []string
	Log     *slog.Logger // default: nothing is logged
	Bytes   int64        // a machine's log file is rotated at this size; default 10 MiB
	Files   int          // so many are kept of a machine; default 3
}

// Keeper is the daemon's side of a keeper's process. It finds that process, or
// starts it when there is something to keep, and again when it has died. All
// methods are safe for concurrent use. Errors carry a bourse code:
// CodeUnavailable when the process cannot be reached or started, CodeInvalid
// for what is no FIFO.
type Keeper struct {
	cfg    KeeperConfig
	ctx    context.Context //nolint:containedctx // the life of what keeps the connection, until Close
	cancel context.CancelCauseFunc
	work   sync.WaitGroup
	turn   chan struct{} // has room for one: who makes a connection has put something in

	mu     sync.Mutex
	layout layout
	held   map[sourceID]*heldSource
	lease  *net.UnixConn // ends with the process; nil when there is none
	up     chan struct{} // closed while there is a lease
	child  *os.Process   // the process that we have started; nil when it was there
	pid    int           // of the last that has answered
	gone   map[bourse.MachineID]*removal
}

// heldSource is a source of which the process is told again when it is
// another one.
type heldSource struct {
	Source
	// Reading ends, which no one reads: what is in a FIFO stays there while
	// the process is being replaced, though its writers may have gone.
	pipes []*os.File
}

// removal tells who follows a machine's log that we have removed it.
type removal struct {
	refs int
	done chan struct{}
}

var errClosed = errors.New("the keeper is closed")

// NewKeeper makes a keeper. It starts nothing and touches no disk.
func NewKeeper(cfg KeeperConfig) *Keeper {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Bytes, cfg.Files = Defaults(cfg.Bytes, cfg.Files)
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Keeper{
		cfg: cfg, ctx: ctx, cancel: cancel, turn: make(chan struct{}, 1), up: make(chan struct{}),
		held: map[sourceID]*heldSource{}, gone: map[bourse.MachineID]*removal{},
	}
}

// Start makes the directory and connects to the process of an earlier daemon,
// if it still runs. If not, none is started before there is something to keep.
func (k *Keeper) Start(ctx context.Context) error {
	l, err := k.prepare()
	if err != nil {
		return err
	}
	if free, err := companion.LockFree(l.lock()); free || err != nil {
		return err
	}
	return k.ensure(ctx)
}

// prepare makes the directory, once.
func (k *Keeper) prepare() (layout, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.layout.dir != "" {
		return k.layout, nil
	}
	l, err := newLayout(k.cfg.Dir)
	if err != nil {
		return layout{}, err
	}
	k.layout = l
	return l, nil
}

// Keep has the output of a machine's boot read into its log from now on. The
// FIFOs must exist; a container may be started on them once Keep has returned.
// Said again it is no error. CodeNotFound when a FIFO is not there.
func (k *Keeper) Keep(ctx context.Context, src Source) error {
	if err := src.validate(); err != nil {
		return err
	}
	h, err := holdSource(src)
	if err != nil {
		return err
	}
	// From here on every new process is told, also when this call fails.
	k.mu.Lock()
	if have := k.held[src.id()]; have != nil {
		h.release()
	} else {
		k.held[src.id()] = h
	}
	k.mu.Unlock()
	return k.call(ctx, &request{Op: opKeep, Source: src}, nil)
}

// holdSource opens the FIFOs that are there.
func holdSource(src Source) (*heldSource, error) {
	h := &heldSource{Source: src}
	for _, path := range src.outputs() {
		in, err := openInput(path, "", nil)
		if err != nil {
			h.release()
			return nil, err
		}
		h.pipes = append(h.pipes, in.stream.Pipe)
		_ = in.guard.Close()
	}
	return h, nil
}

func (h *heldSource) release() {
	for _, p := range h.pipes {
		_ = p.Close()
	}
}

// Done says that a boot has ended: what it wrote is in the log when Done
// returns. Outputs that a process which escaped keeps open are read for two
// more seconds. A source that was never kept, or is done already, is no error.
func (k *Keeper) Done(ctx context.Context, src Source) error {
	err := k.call(ctx, &request{Op: opDone, Source: src}, nil)
	if err == nil {
		k.forget(func(id sourceID) bool { return id == src.id() })
	}
	return err
}

// forget drops held sources.
func (k *Keeper) forget(which func(sourceID) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, h := range k.held {
		if which(id) {
			h.release()
			delete(k.held, id)
		}
	}
}

// Logs returns a machine's lines as driver.Driver's Logs does.
func (k *Keeper) Logs(ctx context.Context, id bourse.MachineID, want driver.LogQuery, line func(driver.LogLine) error) error {
	if err := id.Validate(); err != nil {
		return err
	}
	l, err := k.prepare()
	if err != nil {
		return err
	}
	give := func(l driver.LogLine) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return line(l)
	}
	if !want.Follow {
		return l.files().Read(id, want, give)
	}
	return l.files().Follow(ctx, id, want, func(ctx context.Context, news func()) error {
		return k.watch(ctx, id, news)
	}, give)
}

// Destroy removes all that is kept of a machine. It is idempotent.
func (k *Keeper) Destroy(ctx context.Context, id bourse.MachineID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	l, err := k.prepare()
	if err != nil {
		return err
	}
	k.forget(func(s sourceID) bool { return s.machine == id })
	free, err := companion.LockFree(l.lock())
	switch {
	case err != nil:
		return err
	case free: // no one writes
		err = l.files().Remove(id)
	default:
		err = k.call(ctx, &request{Op: opDestroy, Machine: id}, nil)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.gone[id]; r != nil {
		close(r.done)
		delete(k.gone, id)
	}
	return nil
}

// Close leaves the process alone; it goes on. Calls in progress give
// CodeUnavailable, and so does every later one.
func (k *Keeper) Close() error {
	k.cancel(errClosed)
	k.mu.Lock()
	if k.lease != nil {
		_ = k.lease.Close()
	}
	if k.child != nil {
		_ = k.child.Release() // its new parent reaps it
		k.child = nil
	}
	k.mu.Unlock()
	k.work.Wait()
	k.forget(func(sourceID) bool { return true })
	return nil
}

// Shutdown ends the process, if there is one, and closes the keeper. What is
// kept stays; another process could go on with it.
func (k *Keeper) Shutdown(ctx context.Context) error {
	l, err := k.prepare()
	if err != nil {
		return errors.Join(err, k.Close())
	}
	k.cancel(errClosed) // from here on its end is what is wanted
	return errors.Join(endProcess(ctx, l), k.Close())
}
