package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/machines"
	"github.com/bourse-dev/bourse/worker/publish"
	"github.com/bourse-dev/bourse/worker/reach"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/worker/tasks"
	"github.com/bourse-dev/bourse/worker/volumes"
	"github.com/bourse-dev/bourse/worker/watch"
)

// Worker is the daemon of one host. Its methods are safe for concurrent use.
type Worker struct {
	cfg       Config
	log       *slog.Logger
	self      store.Identity
	state     *state.State
	store     *store.Store
	engine    *fsm.Engine
	host      *admit.Host            // decides which orders the worker fills
	turns     *throttle.OrderLimiter // limits concurrent claims
	load      loadGauge
	volumes   *volumes.Volumes
	machines  *machines.Machines
	tasks     *tasks.Tasks
	holds     *admit.Holds
	checks    *watch.Checks
	reach     *reach.Reach
	schedules *watch.Schedules
	uses      *watch.Tracker
	idle      *watch.Idle
	awake     *watch.Awake // nil if programs cannot keep their machines awake

	ready     atomic.Bool        // set while the worker serves calls
	recovered chan struct{}      // closed when the worker has recovered
	publisher *publish.Publisher // nil if there is no view
	standby   *watch.Standbys    // nil if Config.Standby is nil
}

// Open opens the worker's store and checks the worker's identity. The worker does not
// start any work until Run is called. Errors: already_exists if another daemon uses the
// directory, failed_precondition if the store has another version or belongs to another
// worker, invalid if the configuration is invalid.
func Open(cfg Config) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := store.Open(store.Config{Dir: cfg.Dir, Log: cfg.Log, Fault: cfg.Fault, Failed: cfg.Failed})
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg:       cfg,
		log:       cfg.Log,
		store:     s,
		turns:     throttle.NewOrderLimiter(claimTurns()),
		recovered: make(chan struct{}),
	}
	if w.self, err = w.identify(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	w.state = state.New(w.self, s, cfg.Log)
	w.engine = w.state.Engine
	w.host = w.newHost()
	w.collectLabels()
	w.uses = watch.NewTracker()
	if cfg.KeepAlive {
		if w.awake, err = watch.OpenAwake(filepath.Join(cfg.Dir, "awake"), w.uses); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	w.volumes = volumes.New(volumes.Config{
		State: w.state, Admit: w.host, Host: cfg.Volumes, Peers: cfg.Peers, Dir: cfg.Dir, Forget: cfg.Forget,
	})
	w.machines = w.newMachines()
	w.tasks = w.newTasks()
	w.machines.SetTasks(w.tasks)
	w.holds = admit.NewHolds(w.state, w.host)
	w.checks = watch.NewChecks(w.state, w.dial)
	w.reach = reach.New(reach.Config{Machines: w.state, Start: w.startForUse, Dial: w.dialTo, Uses: w.uses, Host: loopback.HostID()})
	w.schedules = watch.NewSchedules(w.state, w.startScheduled)
	w.idle = watch.NewIdle(watch.IdleConfig{State: w.state, Tracker: w.uses, Machines: w.machines, View: cfg.Standby, After: cfg.IdleAfter, Awake: w.awake})
	if cfg.Standby != nil {
		w.standby = watch.NewStandbys(w.state, cfg.Standby, w.machines, cfg.FailoverDelay)
	}
	if cfg.View != nil {
		w.publisher = publish.New(w.state, publish.Config{View: cfg.View, Images: cfg.Images, Facts: w.facts})
	}
	return w, nil
}

// identify returns the worker's identity. At the worker's first start, it chooses and
// records the identity.
func (w *Worker) identify() (store.Identity, error) {
	var id store.Identity
	err := w.store.Update(context.Background(), func(tx *store.Tx) error {
		known, ok, err := tx.Identity()
		if err != nil {
			return err
		}
		if ok {
			id = known
			return w.sameIdentity(known)
		}
		id = store.Identity{Worker: w.cfg.ID, Tag: w.chooseTag(), Region: w.cfg.Region, CreatedAt: time.Now().UTC()}
		if err := errors.Join(id.Worker.Validate(), id.Region.Validate()); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "%w", err)
		}
		return tx.PutIdentity(id)
	})
	return id, err
}

// Known returns the identity that is stored in a worker's data directory. ok is false if no worker was ever started
// there. Known returns the same errors as Open.
func Known(dir string, log *slog.Logger) (id store.Identity, ok bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, store.FileName)); errors.Is(err, fs.ErrNotExist) {
		return id, false, nil
	}
	s, err := store.Open(store.Config{Dir: dir, Log: log})
	if err != nil {
		return id, false, err
	}
	err = s.View(func(tx *store.Tx) error {
		id, ok, err = tx.Identity()
		return err
	})
	return id, ok, errors.Join(err, s.Close())
}

func (w *Worker) chooseTag() bourse.WorkerTag {
	if w.cfg.Tag != nil {
		return w.cfg.Tag()
	}
	return bourse.WorkerTag(1 + rand.Uint32N(1<<24-1))
}

func (w *Worker) sameIdentity(known store.Identity) error {
	if w.cfg.ID != "" && w.cfg.ID != known.Worker {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the data directory belongs to worker %s, not %s", known.Worker, w.cfg.ID)
	}
	if w.cfg.Region != "" && w.cfg.Region != known.Region {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "worker %s is in region %s, not %s", known.Worker, known.Region, w.cfg.Region)
	}
	return nil
}

// Identity returns the worker's id, tag and region.
func (w *Worker) Identity() store.Identity { return w.self }

// Names returns the records that are used to answer DNS queries for the worker's
// machines.
func (w *Worker) Names() Names { return Names{State: w.state} }

// Recovered returns a channel that is closed once the worker has recovered and serves calls.
func (w *Worker) Recovered() <-chan struct{} { return w.recovered }

// Close closes the store. It must be called after Run has returned.
func (w *Worker) Close() error {
	w.tasks.Close()
	return w.store.Close()
}

// Run recovers the state that an earlier daemon left behind, and then serves calls and runs machines until ctx is done.
// Machines continue to run after Run has returned. Run must be called exactly once.
func (w *Worker) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	w.state.SetContext(ctx)
	if err := w.recover(ctx); err != nil {
		return err
	}
	group.Go(func() error { return w.engine.Run(ctx) })
	group.Go(func() error { return w.pruneStore(ctx) })
	group.Go(func() error { return w.machines.RetryRecover(ctx, w.collectLabels) })
	group.Go(func() error { return w.volumes.Run(ctx) })
	group.Go(func() error { return w.tasks.Run(ctx) })
	group.Go(func() error { return w.holds.Run(ctx) })
	group.Go(func() error { return w.checks.Run(ctx) })
	group.Go(func() error { return w.schedules.Run(ctx) })
	group.Go(func() error { return w.idle.Run(ctx) })
	if w.awake != nil {
		group.Go(func() error { return w.awake.Run(ctx) })
	}
	if w.standby != nil {
		group.Go(func() error { return w.standby.Run(ctx) })
	}
	if w.publisher != nil {
		listener := publish.NewListener(w.publisher, func(ctx context.Context, id bourse.OrderID) error {
			_, err := w.cancelFor(ctx, id, "the view")
			return err
		})
		group.Go(func() error { return w.publisher.Run(ctx) })
		group.Go(func() error { return listener.Run(ctx) })
	}
	err := group.Wait()
	w.ready.Store(false)
	w.state.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// recover reconciles the host with the store after a start: first machines, then tasks, then volumes. The engine
// resumes unfinished runs afterwards. recover does not restart any machines.
func (w *Worker) recover(ctx context.Context) error {
	begin := time.Now()
	found, err := w.machines.Recover(ctx)
	if err != nil {
		return err
	}
	if err := w.tasks.Recover(ctx); err != nil {
		return fmt.Errorf("recover tasks: %w", err)
	}
	if err := w.volumes.Recover(ctx); err != nil {
		if unknown, ok := errors.AsType[*volumes.Unknown](err); ok {
			return machines.UnknownObjectsError(unknown.Volumes)
		}
		return fmt.Errorf("recover volumes: %w", err)
	}
	w.collectLabels()
	w.ready.Store(true)
	close(w.recovered)
	w.log.Info("worker recovered", "machines", found.Machines, "adopted", found.Adopted, "strays", found.Unknown, "took", time.Since(begin))
	return nil
}

const (
	pruneEvery = time.Minute
	// leaveTimeout is how long DestroyAll waits for its changes to be published.
	leaveTimeout = time.Second
)

// pruneStore periodically removes old records from the store, until ctx is done.
func (w *Worker) pruneStore(ctx context.Context) error {
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-prune.C:
			if _, err := w.store.Prune(ctx, time.Now()); err != nil {
				w.log.Warn("prune the store failed", "err", err)
			}
		}
	}
}

// DestroyAll destroys all machines and volumes. It waits until they are destroyed, or until ctx is done. Once they are
// destroyed, it also waits until the view no longer contains them, for up to leaveTimeout.
func (w *Worker) DestroyAll(ctx context.Context) error {
	all, err := w.machines.List(ctx, nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := w.machines.Discard(ctx, m.ID); err != nil {
			return err
		}
	}
	for _, m := range all {
		if _, err := w.state.AwaitMachine(ctx, m.ID, func(m *bourse.Machine) bool { return m.State == bourse.StateDestroyed }); err != nil {
			return err
		}
	}
	if err := w.volumes.DestroyAll(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if w.publisher == nil {
		return nil
	}
	if err := w.publisher.Await(ctx); err != nil {
		w.log.Warn("publish destroyed machines failed", "err", err)
	}
	return nil
}

// Leave announces in the view that the worker no longer accepts orders. It returns nil once the view contains the
// announcement, or ctx's error if ctx is done first. It must be called while Run is running.
func (w *Worker) Leave(ctx context.Context) error {
	if w.publisher == nil {
		return nil
	}
	return w.publisher.Leave(ctx)
}
