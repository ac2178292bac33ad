package worker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/store"
)

// Worker is one host's daemon. Its methods are safe for concurrent use.
type Worker struct {
	cfg     Config
	log     *slog.Logger
	self    store.Identity
	store   *store.Store
	engine  *fsm.Engine
	ledger  ledger
	turns   *throttle.Turns // of claims
	defs    definitions
	news    *news[bourse.MachineID]
	load    loadGauge
	images  imageUse
	volumes volumes
	counts  counts
	warm    warmMachines
	calls   taskCalls
	usages  usages

	labels    atomic.Pointer[labels] // never changed once stored
	ready     atomic.Bool            // recovered: calls are answered
	up        chan struct{}          // closed when first ready
	contained chan struct{}          // closed when the driver of images has recovered
	held      chan struct{}          // holds one: a hold may end earlier than keepHolds thinks
	publisher *publisher             // nil without a view
	watched   watching
	tries     tries
	watches   sync.WaitGroup
	life      context.Context //nolint:containedctx // the life of Run, for the watches that it starts and waits for
}

// Open opens the worker's store and checks who it is. It starts nothing.
// Errors: already_exists when another daemon uses the directory,
// failed_precondition when the store is of a newer release or of another
// worker, invalid for a bad configuration.
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
		cfg:    cfg,
		log:    cfg.Log,
		store:  s,
		engine: nil,
		ledger: newLedger(&cfg),
		turns:  throttle.NewTurns(claimTurns()),
		news:   newNews[bourse.MachineID](),
		up:     make(chan struct{}),
		life:   context.Background(),

		contained: make(chan struct{}),
		warm:      warmMachines{patience: warmUp},
		calls:     taskCalls{wake: make(chan struct{}, 1)},
		held:      make(chan struct{}, 1),
	}
	if w.self, err = w.identify(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	w.log = cfg.Log
	w.engine = fsm.New(fsm.Config{Journal: s.Journal(), Log: w.log, Observe: w.observe})
	if cfg.Images != nil {
		cfg.Images.SetInUse(w.imageInUse)
	}
	w.learnLabels()
	w.define()
	if cfg.View != nil {
		w.publisher = newPublisher(w, cfg.View)
	}
	return w, nil
}

// identify reads who this worker is, or records it at the first start.
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

// Known reads who the worker of a data directory is, without becoming it; ok
// is false before its first start. Errors are those of Open.
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
		return bourse.Errorf(bourse.CodeFailedPrecondition, "worker %s stands in region %s, not %s", known.Worker, known.Region, w.cfg.Region)
	}
	return nil
}

// Identity tells the worker's id, tag and region.
func (w *Worker) Identity() store.Identity { return w.self }

// Recovered is closed when the worker has recovered and answers calls.
func (w *Worker) Recovered() <-chan struct{} { return w.up }

// Close closes the store. Call it after Run has returned.
func (w *Worker) Close() error {
	w.warm.close()
	return w.store.Close()
}

// Run recovers what an earlier daemon left, then works until ctx ends.
// Machines go on after it. It is called once.
func (w *Worker) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	w.life = ctx
	if err := w.recover(ctx); err != nil {
		return err
	}
	group.Go(func() error { return w.engine.Run(ctx) })
	group.Go(func() error { return w.pruneStore(ctx) })
	group.Go(func() error { return w.recoverLate(ctx) })
	group.Go(func() error { return w.keepVolumes(ctx) })
	group.Go(func() error { return w.settleTasks(ctx) })
	group.Go(func() error { return w.keepHolds(ctx) })
	if w.publisher != nil {
		group.Go(func() error { return w.publisher.run(ctx) })
		group.Go(func() error { return newListener(w, w.cfg.View).run(ctx) })
	}
	err := group.Wait()
	w.ready.Store(false)
	w.watches.Wait()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// commit runs fn as one durable transaction about a machine and tells those
// who wait for a change of it.
func (w *Worker) commit(ctx context.Context, id bourse.MachineID, fn func(*store.Tx) error) error {
	err := w.store.Update(ctx, fn)
	switch {
	case err == nil:
		w.machineChanged(id)
	case ctx.Err() != nil: // it may still happen
		w.news.tell(id)
		w.note(id, true)
	default: // nothing has changed; who waits may look all the same
		w.news.tell(id)
	}
	return err
}

// observe hears of every durable transition of a run.
func (w *Worker) observe(r fsm.Record) {
	if id, ok := machineOf(r.Resource); ok {
		w.machineChanged(id)
	} else if id, ok := volumeOf(r.Resource); ok {
		w.volumeChanged(id)
	}
}

func (w *Worker) machineChanged(id bourse.MachineID) {
	if w.cfg.Images != nil {
		w.images.changed()
	}
	w.warm.changed(id)
	w.news.tell(id)
	w.note(id, false)
}

// note has a change of a machine published, some time later.
func (w *Worker) note(id bourse.MachineID, unsure bool) {
	if w.publisher != nil {
		w.publisher.box.add(id, unsure)
	}
}

// inTx makes a function of the worker's own transaction type fit an fsm run.
func inTx(fn func(*store.Tx) error) fsm.Write {
	return func(tx fsm.Tx) error { return fn(tx.(*store.Tx)) }
}

// machine reads a machine as it is after everything acknowledged so far.
func (w *Worker) machine(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	if err := w.store.Sync(ctx); err != nil {
		return bourse.Machine{}, err
	}
	var m bourse.Machine
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		m, err = readMachine(tx, id, recentEvents)
		return err
	})
	return m, err
}

// machines lists the machines of an app, or all for nil.
func (w *Worker) machines(ctx context.Context, app *bourse.App, keep func(*bourse.Machine) bool) ([]bourse.Machine, error) {
	if err := w.store.Sync(ctx); err != nil {
		return nil, err
	}
	out := []bourse.Machine{}
	err := w.store.View(func(tx *store.Tx) error {
		all := tx.Machines()
		if app != nil {
			all = tx.MachinesOf(*app)
		}
		for m, err := range all {
			if err != nil {
				return err
			}
			if !keep(&m) {
				continue
			}
			if m.LastEvents, err = readEvents(tx, m.ID, recentEvents); err != nil {
				return err
			}
			out = append(out, m)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b bourse.Machine) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, err
}
