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
	tables   schema.Tables // from the schema; never changed
	verifier wire.Verifier
	author   *wire.Author // identifies this server; its role determines which rows the server may write
	writer   writer       // used by the writer's goroutine only
	pool     schema.Pool  // for readers; has its own lock

	work    chan struct{} // contains an element while the writer has work to do
	stopped chan struct{} // closed when the writer has stopped

	mu       sync.Mutex // never held across I/O or a callback
	state    *state     // changed only by the writer
	intake   intake
	ring     ring
	jobs     []*job
	ended    bool
	lost     chan struct{}
	sites    sites
	watchers map[*Watcher]struct{}
	faults   faults
	forged   uint64 // number of forged rows and transactions: those not signed by the site that they name
}

// faults contains the current problems with the file.
type faults struct {
	writing error // error of the last write; nil if it succeeded
	reading error // error reported by a reader that has found the file damaged; the writer then replaces the file
}

// Open opens the view's file, creating it if it does not exist. If the file is damaged, has another
// schema, belongs to another cluster or site, or has been unused for too long, Open moves it aside
// and creates a new one. Open does not start any goroutines; call Run.
//
// Errors: CodeAlreadyExists if another process has the file open, CodeUnavailable if the file cannot be opened or
// written. If the disk is full, a worker's view is kept in memory instead.
func Open(cfg Config) (*View, error) {
	if err := cfg.Site.Validate(); err != nil {
		return nil, fmt.Errorf("open view: %w", err)
	}
	cfg = cfg.withDefaults()
	v := &View{
		config: cfg, work: make(chan struct{}, 1), stopped: make(chan struct{}), lost: make(chan struct{}),
		intake: newIntake(queueBytes), ring: newRing(ringBytes), watchers: map[*Watcher]struct{}{},
		sites: sites{map[bourse.WorkerID]presence{}, map[bourse.WorkerID]bool{}},
	}
	v.writer = writer{view: v, onPublish: func(*wire.Transaction, []byte) {}}
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
	if err != nil && v.config.Role == bourse.RoleWorker && schema.IsDiskFull(err) {
		// A worker can do without the view's file, because it can restore the view's contents from
		// its store and from other members. The file, its lock and its key are retained for the
		// next start.
		v.config.Log.Error("disk full: the view stays in memory until the next start", slog.String("path", cfg.Path), slog.Any("err", err))
		v.config.Path = ""
		err = v.writer.openFile(0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open view %s: %w", cfg.Path, err), unlock())
	}
	return v, nil
}

// openKeys prepares this site's keys, and determines the site's role. If the site has no
// certificate, openKeys loads its key, creating one if necessary.
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
	if c.Fault == nil {
		c.Fault = func(FaultStage, uint64) error { return nil }
	}
	return c
}

// Close closes the file. Call it once all readers have finished and Run has returned, or if Run was
// never called.
func (v *View) Close() error {
	v.end()
	err := v.pool.Close()
	if v.writer.file != nil {
		err = errors.Join(err, v.writer.file.Close())
		v.writer.file = nil
	}
	return errors.Join(err, v.writer.unlock())
}

// Placements returns the object that signs and verifies placements, or nil in a cluster without
// certificates.
func (v *View) Placements() *wire.Placements { return v.verifier.Placements }

// Path returns the file's path, or "" if the view is in memory.
func (v *View) Path() string { return v.config.Path }

// Generation returns how many files this view has opened. The number increases when a damaged or
// missing file is replaced. A package that has its own connections must reopen them whenever the
// number increases.
func (v *View) Generation() uint64 { return v.pool.Generation() }
