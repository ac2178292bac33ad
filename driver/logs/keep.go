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
	"github.com/bourse-dev/bourse/driver/internal/companion"
)

// KeepConfig is what Keep needs.
type KeepConfig struct {
	Dir string       // as KeeperConfig.Dir
	Log *slog.Logger // default: nothing is logged
	// Grace is how long a keeper that reads nothing waits for something to
	// read before it ends; default 10 s.
	Grace time.Duration
}

// keep is the keeper's process. Its mutex guards the table of machines and is
// held over nothing that can block.
type keep struct {
	layout layout
	log    *slog.Logger
	wake   chan struct{} // has room for one: see whether we are idle
	over   chan struct{} // closed to end
	work   sync.WaitGroup

	mu       sync.Mutex
	machines map[bourse.MachineID]*kept
	settings settings
	reading  int  // sources
	stopping bool // nothing is begun any more
	ending   bool // over is closed
}

// Bounds of waiting, of the keeper.
const (
	keepGrace    = 10 * time.Second
	helloTimeout = 5 * time.Second
	sendTimeout  = 10 * time.Second // a daemon that does not read is as good as dead
)

// Keep is the main function of a keeper's process: it moves the output of
// containers into log files, whatever becomes of the daemons that ask it to.
// It returns when it has had nothing to read for a while, at SIGTERM, when a
// daemon says so, or when ctx ends, and leaves everything so that another
// keeper can go on.
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

// prepareKeep takes possession of the directory.
func prepareKeep(cfg KeepConfig) (*keep, *net.UnixListener, error) {
	l, err := newLayout(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := companion.Lock(l.lock()); err != nil {
		return nil, nil, err
	}
	if err := os.Chdir("/"); err != nil { // or it keeps a file system from being unmounted
		return nil, nil, err
	}
	k := &keep{
		layout: l, log: cfg.Log, wake: make(chan struct{}, 1), over: make(chan struct{}),
		machines: map[bourse.MachineID]*kept{},
	}
	listener, err := companion.Listen(l.run())
	if err != nil {
		return nil, nil, fmt.Errorf("listen in %s: %w", l.run(), err)
	}
	return k, listener, nil
}

func (k *keep) serve(ctx context.Context, grace time.Duration, listener *net.UnixListener) error {
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()/4)) // it mostly waits
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
			done = sig == syscall.SIGTERM // what a terminal sends does not end us
		case <-k.wake:
			idle.Reset(grace)
		case <-idle.C:
			done = k.retire()
		case <-k.over:
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
	_ = os.Remove(filepath.Join(k.layout.run(), companion.SocketName)) // the next one removes it too
	k.work.Wait()
	k.leave()
	return err
}

// wakeUp has the main loop begin to count again until we are idle.
func (k *keep) wakeUp() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}
