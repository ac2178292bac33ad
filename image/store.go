package image

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/log"
	"github.com/containerd/platforms"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/singleflight"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/redial"
)

// maxConcurrent is the maximum number of concurrent pulls. Other pulls wait.
const maxConcurrent = 3

// Store manages a worker's images. Open creates a Store, and Run does its background work.
type Store struct {
	config   Config
	platform platforms.MatchComparer
	hosts    *registries
	connect  func() (*containerd.Client, error)

	changed   chan struct{}      // has capacity 1; see Changed
	slots     limiter            // limits the number of concurrent pulls
	evicting  limiter            // held by the goroutine that frees space
	leaseLock limiter            // held while a pull's lease is taken, or while a lease without a pull is removed
	pulling   sync.WaitGroup     // goroutines of pulls
	resolving singleflight.Group // lets concurrent callers share requests for the same name
	manifests manifestCache

	mu     sync.Mutex
	memory state
}

// state contains the fields that Store.mu guards.
type state struct {
	catalog   *catalog
	pulls     map[string]*pull    // pulls in progress, by recordName
	leftovers map[string]leftover // data of failed pulls, by recordName
	inUse     func(digest string) bool
	change    uint64 // number of images added or removed so far
	closed    bool
	loaded    bool         // whether containerd's images have been read at least once
	close     func() error // closes the connection to containerd, if the store has opened it
}

// Open returns a new Store. It does not connect to containerd or start goroutines.
func Open(config Config) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Store{
		config: config, platform: hostPlatform(), hosts: newRegistries(&config),
		changed: make(chan struct{}, 1), slots: make(limiter, maxConcurrent), evicting: make(limiter, 1), leaseLock: make(limiter, 1),
		memory: state{catalog: newCatalog(), pulls: map[string]*pull{}, leftovers: map[string]leftover{}},
	}
	s.connect = sync.OnceValues(config.Client)
	if config.Client == nil {
		s.connect = sync.OnceValues(func() (*containerd.Client, error) {
			c, err := redial.Containerd(config.Address)
			if err == nil {
				s.mu.Lock()
				s.memory.close = c.Close
				s.mu.Unlock()
			}
			return c, err
		})
	}
	return s, nil
}

// SetInUse sets the function that reports whether a machine uses the image with the given digest. The store calls f,
// without holding locks, before it evicts, prunes or removes an image, and for List. If f is nil, which is the default,
// no image is considered in use.
func (s *Store) SetInUse(f func(digest string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.inUse = f
}

// Changed returns a channel that receives a value when the result of List may have changed: an image was added or
// removed, or a pull started or ended. One value may stand for several changes.
func (s *Store) Changed() <-chan struct{} { return s.changed }

func (s *Store) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // a value is already pending
	}
}

// Has reports whether an image is on this worker and unpacked. It does not perform I/O.
func (s *Store) Has(ref bourse.ImageRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.catalog.find(ref) != nil
}

// Missing returns the number of bytes that pulling an image for an organization would download: 0 if the image is on
// this worker, and otherwise the total size of the parts that no local image contains. It returns false if the image's
// parts are unknown, or if its registry has not recently confirmed that the organization may access the image. Missing
// does not perform I/O.
func (s *Store) Missing(org, name string) (int64, bool) {
	ref := bourse.ParseImageRef(name)
	who := s.hosts.tenantOf(org, ref.Registry)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.catalog.missing(ref, who, time.Now())
}

// MarkUsed records that an image was just used to start a machine. The time is later stored in containerd in the
// background.
func (s *Store) MarkUsed(digest string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.memory.catalog.byDigest(digest) {
		r.usedAt, r.dirty = now, true
	}
}

// List returns the images on this worker and those being pulled, sorted by name. It calls the function that was passed
// to SetInUse, and otherwise performs no I/O.
func (s *Store) List(ctx context.Context) ([]bourse.Image, error) {
	s.mu.Lock()
	inUse := s.memory.inUse
	var out []bourse.Image
	for _, r := range s.memory.catalog.sorted() {
		out = append(out, r.image())
	}
	for name, p := range s.memory.pulls {
		if _, ok := s.memory.catalog.records[name]; !ok {
			out = append(out, p.state())
		}
	}
	s.mu.Unlock()
	for i := range out {
		out[i].InUse = inUse != nil && inUse(out[i].Ref.Digest)
	}
	slices.SortFunc(out, func(a, b bourse.Image) int {
		return compare(a.Ref, b.Ref)
	})
	return out, ctx.Err()
}

func compare(a, b bourse.ImageRef) int {
	switch x, y := a.String(), b.String(); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// containerd returns ctx with the store's namespace and the connection to containerd, which it opens if necessary.
func (s *Store) containerd(ctx context.Context) (context.Context, *containerd.Client, error) {
	c, err := s.connect()
	if err != nil {
		return ctx, nil, bourse.Errorf(bourse.CodeUnavailable, "containerd: %w", err)
	}
	return s.within(ctx), c, nil
}

// within adds the store's namespace to ctx. It also disables logging by containerd's client, which would otherwise log
// every failed request.
func (s *Store) within(ctx context.Context) context.Context {
	quiet := &logrus.Logger{Out: io.Discard, Formatter: &logrus.TextFormatter{}, Hooks: logrus.LevelHooks{}, Level: logrus.PanicLevel}
	return log.WithLogger(namespaces.WithNamespace(ctx, s.config.Namespace), logrus.NewEntry(quiet))
}

// Close stops the pulls in progress and waits until they have stopped. Run calls Close when it ends. The next daemon's
// Run resumes these pulls.
func (s *Store) Close() error {
	s.mu.Lock()
	s.memory.closed = true
	for _, p := range s.memory.pulls {
		p.cancel(errClosed)
	}
	s.mu.Unlock()
	s.pulling.Wait()
	s.hosts.close()
	s.mu.Lock()
	closing := s.memory.close
	s.memory.close = nil
	s.mu.Unlock()
	if closing == nil {
		return nil
	}
	return closing()
}
