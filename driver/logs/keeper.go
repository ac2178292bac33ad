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
	"github.com/bourse-dev/bourse/internal/companion"
)

// Source describes the output of one boot of a machine.
type Source struct {
	Machine bourse.MachineID `json:"machine"`
	Boot    int              `json:"boot"`             // number of the boot, at least 1
	Stdout  string           `json:"stdout"`           // path of an existing FIFO
	Stderr  string           `json:"stderr,omitempty"` // path of another existing FIFO; "" for a terminal, whose output is one stream
}

// KeeperConfig configures a Keeper. Dir and Command are required.
type KeeperConfig struct {
	// Dir is the keeper's directory, created if missing.
	Dir string
	// Command is the command that runs Keep, for example {"/proc/self/exe", "keeper"}. Dir is appended as its last
	// argument.
	Command []string
	Log     *slog.Logger // default: discards all records
	Bytes   int64        // size in bytes at which a machine's log file is rotated; default 10 MiB
	Files   int          // maximum number of log files per machine; default 3
}

// Keeper manages a keeper's process for the daemon. It connects to a running process, or starts one when there is
// output to read, and replaces it if it dies. All methods are safe for concurrent use. Errors have a bourse code:
// CodeUnavailable if the process cannot be reached or started, CodeInvalid if a path is not a FIFO.
type Keeper struct {
	cfg        KeeperConfig
	ctx        context.Context //nolint:containedctx // lifetime of the goroutines that maintain the connection, until Close
	cancel     context.CancelCauseFunc
	work       sync.WaitGroup
	connecting chan struct{} // has capacity 1; full while a goroutine is connecting

	mu        sync.Mutex
	layout    layout
	held      map[sourceID]*heldSource
	lease     *net.UnixConn // connection to the process; breaks when the process exits; nil if there is none
	connected chan struct{} // closed while there is a lease
	child     *os.Process   // the keeper's process if this daemon started it, otherwise nil
	pid       int           // process id of the latest process that answered
	removals  map[bourse.MachineID]*removal
}

// heldSource is a source that must be read until Done or Destroy discards it. It is sent to every new keeper process.
type heldSource struct {
	Source
	// The read ends of the FIFOs. The daemon never reads from them. They preserve the FIFOs' contents while the keeper's
	// process is being replaced, even if all writers have exited.
	pipes []*os.File
}

// removal notifies the goroutines that follow a machine's log when the log is removed.
type removal struct {
	refs int
	done chan struct{}
}

var errClosed = errors.New("the keeper is closed")

// NewKeeper returns a keeper. It does not start a process or access the disk.
func NewKeeper(cfg KeeperConfig) *Keeper {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Bytes, cfg.Files = Defaults(cfg.Bytes, cfg.Files)
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Keeper{
		cfg: cfg, ctx: ctx, cancel: cancel, connecting: make(chan struct{}, 1), connected: make(chan struct{}),
		held: map[sourceID]*heldSource{}, removals: map[bourse.MachineID]*removal{},
	}
}

// Start creates the directory. If a process that an earlier daemon started is still running, Start connects to it.
// Otherwise, a process is started later, when there is output to read.
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

// prepare creates the directory on the first call, and returns its layout.
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

// Keep starts copying the output of one boot of a machine to the machine's log. Once Keep has returned nil, a container
// that writes to the FIFOs may be started. Keep is idempotent. It returns CodeNotFound if a FIFO does not exist.
func (k *Keeper) Keep(ctx context.Context, src Source) error {
	if err := src.validate(); err != nil {
		return err
	}
	h, err := holdSource(src)
	if err != nil {
		return err
	}
	// From here on, the source is sent to every new process, even if this call to Keep fails.
	k.mu.Lock()
	if have := k.held[src.id()]; have != nil {
		h.release()
	} else {
		k.held[src.id()] = h
	}
	k.mu.Unlock()
	return k.call(ctx, &request{Op: opKeep, Source: src}, nil)
}

// holdSource opens the FIFOs of a source, which must exist.
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

// Done stops copying the output of a boot that has ended. When it returns nil, all of the boot's output is in the log.
// If another process still holds an output open, Done waits for up to two seconds. It does nothing if the source is
// unknown or already done.
func (k *Keeper) Done(ctx context.Context, src Source) error {
	err := k.call(ctx, &request{Op: opDone, Source: src}, nil)
	if err == nil {
		k.forget(func(id sourceID) bool { return id == src.id() })
	}
	return err
}

// forget discards all held sources for which match returns true.
func (k *Keeper) forget(match func(sourceID) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, h := range k.held {
		if match(id) {
			h.release()
			delete(k.held, id)
		}
	}
}

// Logs implements driver.Driver's Logs.
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

// Destroy removes all data stored for a machine. It is idempotent.
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
	case free: // no process is writing the log
		err = l.files().Remove(id)
	default:
		err = k.call(ctx, &request{Op: opDestroy, Machine: id}, nil)
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.removals[id]; r != nil {
		close(r.done)
		delete(k.removals, id)
	}
	return nil
}

// Close closes the keeper but leaves its process running. Calls in progress and later calls
// return CodeUnavailable.
func (k *Keeper) Close() error {
	k.cancel(errClosed)
	k.mu.Lock()
	if k.lease != nil {
		_ = k.lease.Close()
	}
	if k.child != nil {
		_ = k.child.Release() // its new parent will reap it
		k.child = nil
	}
	k.mu.Unlock()
	k.work.Wait()
	k.forget(func(sourceID) bool { return true })
	return nil
}

// Shutdown terminates the keeper's process, if there is one, and closes the keeper. The logs remain, and a later
// process can append to them.
func (k *Keeper) Shutdown(ctx context.Context) error {
	l, err := k.prepare()
	if err != nil {
		return errors.Join(err, k.Close())
	}
	k.cancel(errClosed) // the process now closes the connection, which is not an error
	return errors.Join(endProcess(ctx, l), k.Close())
}
