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
)

// View is an open view. It is safe for concurrent use.
type View struct {
	config Config
	tables tables // of the schema; fixed
	notary notary
	// mayShare: our own role lets us write rows that belong to no site.
	mayShare bool
	writer   writer // the writer's own
	pool     pool   // the readers'; has its own lock

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
// damaged, of a newer schema, of another cluster or site, or that nobody used
// for long, is moved aside and made anew. CodeAlreadyExists: another process
// has it open. CodeUnavailable: the disk refuses. It starts nothing.
func Open(cfg Config) (*View, error) { return openWith(cfg, migrations()) }

// openWith is Open with another history of the schema.
func openWith(cfg Config, history []string) (*View, error) {
	if err := cfg.Site.Validate(); err != nil {
		return nil, fmt.Errorf("open view: %w", err)
	}
	cfg = cfg.withDefaults()
	v := &View{
		config: cfg, work: make(chan struct{}, 1), stopped: make(chan struct{}), lost: make(chan struct{}),
		intake: newIntake(cfg.QueueBytes), ring: newRing(cfg.RingBytes), watchers: map[*Watcher]struct{}{},
		sites: sites{map[bourse.WorkerID]presence{}, map[bourse.WorkerID]bool{}},
	}
	v.writer = writer{history: history, hear: func(*Transaction, []byte) {}}
	unlock := func() error { return nil }
	if cfg.Path != "" {
		if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "open view: %w", err)
		}
		var err error
		if unlock, err = lock(cfg.Path + ".lock"); err != nil {
			return nil, fmt.Errorf("open view %s: %w", cfg.Path, err)
		}
		clearSpools(cfg.Path)
	}
	v.writer.unlock = unlock
	if err := v.openKeys(); err != nil {
		return nil, errors.Join(fmt.Errorf("open view %s: %w", cfg.Path, err), unlock())
	}
	err := v.openFile(0)
	if err != nil && v.config.Role == bourse.RoleWorker && noRoom(err) {
		// What is in it the worker knows better, or hears again. The file stays as
		// it is, with its lock and its key, for the next start.
		v.config.Log.Error("the view is in memory until the next start: its disk has no room", slog.String("path", cfg.Path), slog.Any("err", err))
		v.config.Path = ""
		err = v.openFile(0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open view %s: %w", cfg.Path, err), unlock())
	}
	return v, nil
}

// openKeys makes or reads the key of a site that has no certificate, and finds
// out what our own birth lets us do.
func (v *View) openKeys() error {
	v.notary = notary{v.config.Keys, v.config.Cluster}
	if v.notary.keys == nil {
		k, err := v.openKey()
		if err != nil {
			return err
		}
		v.notary.keys = k
	}
	birth, _ := v.notary.keys.Own()
	now := uint64(max(v.config.Now().UnixMilli(), 1))
	self := &author{stream: Stream{v.config.Site, now}, birth: birth}
	v.mayShare = self.read(v.notary.keys) == nil && self.mayShare()
	return self.err
}

func (v *View) openKey() (*Key, error) {
	if v.config.Path == "" {
		return NewKey(v.config.Role)
	}
	return loadKey(v.config.Path+keySuffix, v.config.Role)
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
// and nobody reads.
func (v *View) Close() error {
	v.end()
	err := v.pool.close()
	if v.writer.file != nil {
		err = errors.Join(err, v.writer.file.close())
		v.writer.file = nil
	}
	return errors.Join(err, v.writer.unlock())
}

// Path gives the file's path, "" when the view is in memory.
func (v *View) Path() string { return v.config.Path }

// Generation counts the files that this view has had: it grows when a damaged
// or vanished one is replaced. Who has connections of its own opens them anew.
func (v *View) Generation() uint64 { return v.pool.generation() }
