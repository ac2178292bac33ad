package logs

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
)

// KeepConfig configures Keep.
type KeepConfig struct {
	Dir string       // the same as KeeperConfig.Dir
	Log *slog.Logger // default: discards all records
	// Grace is how long an idle keeper waits before it exits; default 10 s.
	Grace time.Duration
}

// server is the state of a keeper's process. mu guards the fields below it and is not held during
// blocking operations.
type server struct {
	layout layout
	log    *slog.Logger
	wake   chan struct{} // has capacity 1; a value restarts the idle timer
	exit   chan struct{} // closed when the process must exit
	work   sync.WaitGroup

	mu       sync.Mutex
	machines map[bourse.MachineID]*keptMachine
	settings settings
	reading  int  // number of sources being read
	stopping bool // whether new sources are rejected
	ending   bool // whether exit has been closed
}

// Timeouts of the keeper.
const (
	keepGrace    = 10 * time.Second
	helloTimeout = 5 * time.Second
	sendTimeout  = 10 * time.Second // a daemon that does not read for this long is considered dead
)

// Keep is the main function of a keeper's process. It copies the output of containers to log files,
// even while no daemon is running. It returns when it has been idle for Grace, when it receives
// SIGTERM, when a daemon requests it, or when ctx is done. Another keeper process can then take
// over.
func Keep(ctx context.Context, cfg KeepConfig) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Grace <= 0 {
		cfg.Grace = keepGrace
	}
	companion.CloseInherited()
	tell := companion.Readiness()
	k, listener, err := prepareKeep(cfg)
	tell(err)
	if err != nil {
		return err
	}
	return k.serve(ctx, cfg.Grace, listener)
}

// prepareKeep locks the directory, prepares the process, and starts listening.
func prepareKeep(cfg KeepConfig) (*server, *net.UnixListener, error) {
	l, err := newLayout(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := companion.Lock(l.lock()); err != nil {
		return nil, nil, err
	}
	if err := os.Chdir("/"); err != nil { // otherwise the current directory's file system could not be unmounted
		return nil, nil, err
	}
	k := &server{
		layout: l, log: cfg.Log, wake: make(chan struct{}, 1), exit: make(chan struct{}),
		machines: map[bourse.MachineID]*keptMachine{},
	}
	listener, err := companion.Listen(l.run())
	if err != nil {
		return nil, nil, fmt.Errorf("listen in %s: %w", l.run(), err)
	}
	return k, listener, nil
}

func (k *server) serve(ctx context.Context, grace time.Duration, listener *net.UnixListener) error {
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()/4)) // the keeper mostly waits
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTERM)
	defer signal.Stop(signals)
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	k.work.Go(func() { k.accept(serving, listener) })
	idle := time.NewTimer(grace)
	for done := false; !done; {
		select {
		case sig := <-signals:
			done = sig == syscall.SIGTERM // other signals, such as those from a terminal, are ignored
		case <-k.wake:
			idle.Reset(grace)
		case <-idle.C:
			done = k.retire()
		case <-k.exit:
			done = true
		case <-ctx.Done():
			done = true
		}
	}
	k.mu.Lock()
	k.stopping = true
	k.mu.Unlock()
	cancel()
	err := listener.Close()
	_ = os.Remove(filepath.Join(k.layout.run(), companion.SocketName)) // if this fails, the next keeper removes the socket
	k.work.Wait()
	k.stopReading()
	return err
}

// wakeUp makes the main loop restart the idle timer.
func (k *server) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}
