package process

import (
	"cmp"
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
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/internal/companion"
)

// supervisor manages the tasks of one directory. mu guards the table of machines, the session and
// the settings, and is not held during blocking system calls. A machine's log has its own mutex,
// which is locked after mu.
type supervisor struct {
	layout       layout
	mark         string
	log          *slog.Logger
	groups       cgroup.Groups
	devNull      *os.File // default stdin of tasks
	nice         int
	children     children
	threads      chan struct{}  // limits the number of threads that run uses
	work         sync.WaitGroup // goroutines that must exit before Supervise returns
	wake         chan struct{}  // has capacity 1; a value makes the main loop check whether the supervisor is idle
	shutdownDone chan struct{}  // closed when a shutdown is complete

	mu       sync.Mutex
	machines map[bourse.MachineID]*machine
	session  *session // the daemon's session; nil if no daemon is connected
	settings settings
	stopping bool
}

// Supervise is the main function of a supervisor process. It manages the tasks of one directory,
// even while no daemon is running. It returns after a shutdown has been requested by
// Driver.Shutdown, by SIGTERM, or by canceling ctx. It also returns if there are no tasks and no
// daemon has been connected for SupervisorConfig.Grace. It changes the process's working directory,
// signal handling and scheduling, and reaps every child, so the process cannot be used for anything
// else.
func Supervise(ctx context.Context, cfg SupervisorConfig) error {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	companion.CloseInherited()
	tell := companion.Readiness()
	s, listener, err := prepare(cfg)
	tell(err)
	if err != nil {
		return err
	}
	return s.serve(ctx, cfg, listener)
}

// prepare locks the directory, and then kills all processes that an earlier supervisor left behind.
func prepare(cfg SupervisorConfig) (*supervisor, *net.UnixListener, error) {
	layout, err := newLayout(cfg.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := companion.Lock(layout.lock()); err != nil {
		return nil, nil, err
	}
	// Leave the current directory; otherwise, its file system could not be unmounted.
	if err := os.Chdir("/"); err != nil {
		return nil, nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	s := &supervisor{
		layout: layout, mark: layout.mark(), log: cfg.Log, devNull: null, nice: niceness(),
		wake: make(chan struct{}, 1), shutdownDone: make(chan struct{}),
		machines: map[bourse.MachineID]*machine{},
		children: children{byPID: map[int]func(ended){}}, threads: make(chan struct{}, maxForkThreads),
	}
	if err := adoptOrphans(); err != nil {
		s.log.Warn("adopt orphans failed", "err", err)
	}
	s.groups = cgroup.Open(s.mark, s.log)
	s.killLeftovers()
	listener, err := companion.Listen(layout.run())
	if err != nil {
		s.groups.Close()
		return nil, nil, fmt.Errorf("listen in %s: %w", layout.run(), err)
	}
	return s, listener, nil
}

// serve runs until the supervisor is no longer needed.
func (s *supervisor) serve(ctx context.Context, cfg SupervisorConfig, listener *net.UnixListener) error {
	// Let the Go runtime use only a quarter of the host's processors. A fork occupies one of them
	// until the child executes its program. With more processors, threads would only spend more
	// time searching for work.
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()/4))
	// Handle these signals, so that signals from a terminal do not terminate this process. This
	// also makes programs start with the default actions for these signals, even if the
	// supervisor's parent ignores them.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGTERM)
	defer signal.Stop(signals)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.work.Go(func() { s.accept(ctx, listener) })
	grace := time.NewTimer(max(cfg.Grace, firstGrace))
	for {
		select {
		case sig := <-signals:
			switch sig {
			case syscall.SIGCHLD:
				s.children.reap()
			case syscall.SIGTERM:
				s.work.Go(func() { s.endAll(ctx) })
			}
			continue
		case <-s.wake:
			if s.idle() {
				grace.Reset(cmp.Or(cfg.Grace, idleGrace))
			}
			continue
		case <-grace.C:
			if !s.retire() {
				continue
			}
		case <-s.shutdownDone:
		case <-ctx.Done():
			s.work.Go(func() { s.endAll(context.WithoutCancel(ctx)) })
			ctx = context.WithoutCancel(ctx)
			continue
		}
		break
	}
	cancel()
	err := listener.Close()
	_ = os.Remove(filepath.Join(s.layout.run(), companion.SocketName)) // if this fails, the next supervisor removes the socket
	s.awaitWork(signals)
	s.groups.Close()
	return err
}

// awaitWork waits for the goroutines in s.work. It continues to reap children, because some of
// these goroutines may be waiting for a killed command.
func (s *supervisor) awaitWork(signals <-chan os.Signal) {
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	for {
		s.children.reap() // some children may have ended at the same time as the loop
		select {
		case <-signals:
		case <-done:
			return
		}
	}
}

// endAll stops all tasks, removes all data about the directory's machines, and makes Supervise
// return. Only the first call has an effect.
func (s *supervisor) endAll(ctx context.Context) {
	s.mu.Lock()
	first := !s.stopping
	s.stopping = true
	s.mu.Unlock()
	if !first {
		return
	}
	if err := s.shutdown(ctx); err != nil {
		s.log.Error("shutdown incomplete", "err", err)
	}
	close(s.shutdownDone)
}

// wakeUp makes the main loop check whether the supervisor is idle.
func (s *supervisor) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// grouping returns the cgroup.Groups in which new tasks are started.
func (s *supervisor) grouping() cgroup.Groups {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settings.NoLimits {
		return cgroup.None{}
	}
	return s.groups
}

// isRunning reports whether a task is in the table and has not ended.
func (s *supervisor) isRunning(id driver.TaskID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[id.Machine]
	return m != nil && m.tasks[id.Boot] != nil && m.tasks[id.Boot].status.Exit == nil
}
