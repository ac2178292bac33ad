package volume

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// Config of a Store.
type Config struct {
	Dir string       // required; made when it is missing; no other program may write to it
	Log *slog.Logger // default: none

	// Key returns the key of a volume: at least 32 bytes, always the same. nil
	// means that there are no encrypted volumes. See KeyFile.
	Key func(bourse.VolumeID) ([]byte, error)
}

// Store is the volumes, snapshots and scratch space of one host. Its methods
// may be called at the same time.
type Store struct {
	dir   string
	log   *slog.Logger
	key   func(bourse.VolumeID) ([]byte, error)
	crypt bool // the host has dm-crypt, and there are keys
	live  bool // mounted file systems may grow

	locks   locks
	noClone atomic.Bool     // the directory's file system has no reflinks
	step    func(at string) // tests stop the process there
	pause   time.Duration   // between tries of a broken source

	mu     sync.Mutex
	mounts map[string]int         // how often a volume was mounted; shows whether it may have changed
	forks  map[string]*time.Timer // by directory; removes copies that nobody reads
}

// Open prepares the directory. It reports CodeUnavailable when the host cannot
// make file systems of a limited size: no Linux, no root, no loop devices, no
// e2fsprogs. It changes nothing else: call Recover next.
func Open(cfg Config) (*Store, error) {
	if err := checkHost(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, failed(err, "make the directory of volumes")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // as the kernel will name it
	}
	if err != nil {
		return nil, failed(err, "open the directory of volumes")
	}
	return &Store{
		dir: dir, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), key: cfg.Key, crypt: cfg.Key != nil && hostCrypts(), live: mayGrow(),
		step: func(string) {}, pause: 100 * time.Millisecond,
		mounts: map[string]int{}, forks: map[string]*time.Timer{},
	}, nil
}

// Labels returns what the host's volumes can do, as facts of the worker.
func (s *Store) Labels() map[string]string {
	labels := map[string]string{"volume": "loop"}
	if s.crypt {
		maps.Copy(labels, map[string]string{"volume.encrypted": "dm-crypt"})
	}
	return labels
}

// ExtendsLive reports whether a mounted file system grows at once when its volume
// is extended. Where the worker lacks CAP_SYS_RESOURCE, as in some containers,
// it grows when it is mounted the next time.
func (s *Store) ExtendsLive() bool { return s.live }

// locks has a lock for each id.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	free chan struct{} // capacity 1; holds a token while the lock is free
	refs int           // callers that have it or wait
}

// lock waits for the id, at most as long as ctx.
func (l *locks) lock(ctx context.Context, id string) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[id]
	if k == nil {
		k = &lock{free: make(chan struct{}, 1)}
		k.free <- struct{}{}
		l.held[id] = k
	}
	k.refs++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.refs--; k.refs == 0 {
			delete(l.held, id)
		}
	}
	select {
	case <-k.free:
		return func() { k.free <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
