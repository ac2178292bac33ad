package view

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// View is an open view. It is safe for concurrent use.
type View struct {
	config   Config
	tables   schema.Tables // of the schema; fixed
	verifier wire.Verifier
	author   *wire.Author // we ourselves: what our role lets us write
	writer   writer       // the writer's own
	pool     schema.Pool  // the readers'; has its own lock

	work    chan struct{} // has one element when the writer has something to do
	stopped chan struct{} // closed when the writer has ended

	mu       sync.Mutex // never held over I/O or a callback
	state    *state     // changed by the writer alone
	intake   intake
	ring     ring
	jobs     []*job
	ended    bool
	lost     chan struct{}
	sites    sites
	watchers map[*Watcher]struct{}
	faults   faults
	forged   uint64 // rows and transactions that were not of their sites
}

// faults are what is wrong with the file at present.
type faults struct {
	writing error // why nothing can be written
	reading error // what a reader found; the writer will look at it
}

// Open opens the view's file, and makes it when there is none. A file that is
// damaged, of another schema, of another cluster or site, or that was not used
// for long, is moved aside and made again. CodeAlreadyExists: another process
// has it open. CodeUnavailable: the disk refuses. It starts nothing.
func Open(cfg Config) (*View, error) {
	if err := cfg.Site.Validate(); err != nil {
		return nil, fmt.Errorf("open view: %w", err)
	}
	cfg = cfg.withDefaults()
	v := &View{
		config: cfg, work: make(chan struct{}, 1), stopped: make(chan struct{}), lost: make(chan struct{}),
		intake: newIntake(cfg.QueueBytes), ring: newRing(cfg.RingBytes), watchers: map[*Watcher]struct{}{},
		sites: sites{map[bourse.WorkerID]presence{}, map[bourse.WorkerID]bool{}},
	}
	v.writer = writer{v: v, onPublish: func(*wire.Transaction, []byte) {}}
	unlock := func() error { return nil }
	if cfg.Path != "" {
		if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "open view: %w", err)
		}
		var err error
		if unlock, err = schema.Lock(cfg.Path + ".lock"); err != nil {
			return nil, fmt.Errorf("open view %s: %w", cfg.Path, err)
		}
		wire.ClearSpools(cfg.Path)
	}
	v.writer.unlock = unlock
	if err := v.openKeys(); err != nil {
		return nil, errors.Join(fmt.Errorf("open view %s: %w", cfg.Path, err), unlock())
	}
	err := v.writer.openFile(0)
	if err != nil && v.config.Role == bourse.RoleWorker && schema.NoRoom(err) {
		// What is in it the worker knows better, or receives again. The file stays as
		// it is, with its lock and its key, for the next start.
		v.config.Log.Error("the view is in memory until the next start: its disk has no room", slog.String("path", cfg.Path), slog.Any("err", err))
		v.config.Path = ""
		err = v.writer.openFile(0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open view %s: %w", cfg.Path, err), unlock())
	}
	return v, nil
}

// openKeys makes or reads the key of a site that has no certificate, and finds
// out what our own birth lets us do.
func (v *View) openKeys() error {
	v.verifier = wire.Verifier{Keys: v.config.Keys, Cluster: v.config.Cluster}
	if v.verifier.Keys == nil {
		k, err := v.openKey()
		if err != nil {
			return err
		}
		v.verifier.Keys = k
	}
	if v.config.Certified {
		v.verifier.Placements = wire.NewPlacements(v.config.Cluster, v.config.Site, v.verifier.Keys, v.config.Now)
	}
	birth, _ := v.verifier.Keys.Own()
	now := uint64(max(v.config.Now().UnixMilli(), 1))
	self := &wire.Author{Stream: wire.Stream{Site: v.config.Site, Epoch: now}, Birth: birth}
	v.author = self
	return self.Read(v.verifier.Keys)
}

func (v *View) openKey() (*wire.Key, error) {
	if v.config.Path == "" {
		return wire.NewKey(v.config.Role)
	}
	return wire.LoadKey(v.config.Path+wire.KeySuffix, v.config.Role)
}

func (c Config) withDefaults() Config {
	if c.Role == "" {
		c.Role = bourse.RoleBroker
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.QueueBytes <= 0 {
		c.QueueBytes = DefaultQueueBytes
	}
	if c.RingBytes <= 0 {
		c.RingBytes = DefaultRingBytes
	}
	if c.Fault == nil {
		c.Fault = func(FaultStage, uint64) error { return nil }
	}
	return c
}

// Close closes the file. Call it when Run has returned, or was never called,
// and no one reads.
func (v *View) Close() error {
	v.end()
	err := v.pool.Close()
	if v.writer.file != nil {
		err = errors.Join(err, v.writer.file.Close())
		v.writer.file = nil
	}
	return errors.Join(err, v.writer.unlock())
}

// Placements returns what signs and verifies placements, nil in a cluster
// without certificates.
func (v *View) Placements() *wire.Placements { return v.verifier.Placements }

// Path returns the file's path, "" when the view is in memory.
func (v *View) Path() string { return v.config.Path }

// Generation counts the files that this view has had: it grows when a damaged
// or vanished one is replaced. A package with connections of its own opens them again.
func (v *View) Generation() uint64 { return v.pool.Generation() }
