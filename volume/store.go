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

// Config configures a Store.
type Config struct {
	Dir string       // the store's directory; required; created if missing; no other program may write to it
	Log *slog.Logger // default: nothing is logged

	// Key returns the key of a volume. The key must have at least 32 bytes and must never change.
	// If Key is nil, encrypted volumes are not supported. See KeyFile.
	Key func(bourse.VolumeID) ([]byte, error)
}

// Store manages the volumes, snapshots and scratch space of one host. It is safe for concurrent use.
type Store struct {
	dir          string
	log          *slog.Logger
	key          func(bourse.VolumeID) ([]byte, error)
	crypt        bool // whether the host has dm-crypt and Config.Key is set
	growsMounted bool // whether mounted file systems can grow

	locks   locks
	noClone atomic.Bool     // whether an attempt has shown that dir's file system does not support reflinks
	step    func(at string) // called at each step, so that tests can stop the process there
	pause   time.Duration   // initial pause before reading from a failed source again

	mu     sync.Mutex
	mounts map[string]int         // how often each object was mounted, to detect that its content may have changed
	forks  map[string]*time.Timer // timers that remove copies without a reader, by the names of the copies' directories
}

// Open opens the store in Config.Dir, creating the directory if it does not exist. It does not
// change the contents of an existing directory. The caller must call Recover next. Open returns
// CodeUnavailable if the host does not support size-limited file systems, which require Linux,
// root, loop devices and e2fsprogs.
func Open(cfg Config) (*Store, error) {
	if err := CheckHost(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, failed(err, "create the volume directory")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // resolve symbolic links, because the kernel reports paths without them
	}
	if err != nil {
		return nil, failed(err, "open the volume directory")
	}
	return &Store{
		dir: dir, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)), key: cfg.Key, crypt: cfg.Key != nil && hostSupportsCrypt(), growsMounted: mayGrow(),
		step: func(string) {}, pause: 100 * time.Millisecond,
		mounts: map[string]int{}, forks: map[string]*time.Timer{},
	}, nil
}

// Labels returns the labels that describe the host's support for volumes.
func (s *Store) Labels() map[string]string {
	labels := map[string]string{"volume": "loop"}
	if s.crypt {
		maps.Copy(labels, map[string]string{"volume.encrypted": "dm-crypt"})
	}
	return labels
}

// ExtendsLive reports whether the file system of a volume in use grows immediately when the volume
// is extended. If the worker lacks CAP_SYS_RESOURCE, as in some containers, or if a virtual machine
// has used the volume, the file system grows only when it is next mounted.
func (s *Store) ExtendsLive(id bourse.VolumeID) bool {
	vm, err := s.isVM(string(id), stageComplete)
	return s.growsMounted && !vm && err == nil
}

// locks contains a lock for each id.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	free chan struct{} // contains a token while the lock is free
	refs int           // number of callers that hold the lock or wait for it
}

// lock acquires the lock of id. It waits for the lock until ctx is done.
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
