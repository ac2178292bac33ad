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

// atOnce bounds the pulls that run at the same time; others wait for their turn.
const atOnce = 3

// Store is a worker's images. Make it with Open, run it with Run.
type Store struct {
	config   Config
	platform platforms.MatchComparer
	hosts    *registries
	connect  func() (*containerd.Client, error)

	changed   chan struct{}      // capacity 1
	turns     gate               // for the pulls that run
	room      gate               // held to free space
	leasing   gate               // for who takes a pull's lease, or drops one that no pull has
	pulling   sync.WaitGroup     // the goroutines of pulls
	resolving singleflight.Group // requests for what a tag means
	manifests manifestCache

	mu     sync.Mutex
	memory state
}

// state is what Store.mu guards.
type state struct {
	catalogue *catalogue
	pulls     map[string]*pull    // in progress, by the name of the future record
	kept      map[string]leftover // of failed pulls, by the same name
	inUse     func(digest string) bool
	change    uint64 // counts what was added and dropped
	closed    bool
	loaded    bool         // what containerd has was read at least once
	close     func() error // of the connection, when it is ours
}

// Open prepares a store. It starts nothing and connects to nothing.
func Open(config Config) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Store{
		config: config, platform: hostPlatform(), hosts: newRegistries(&config),
		changed: make(chan struct{}, 1), turns: make(gate, atOnce), room: make(gate, 1), leasing: make(gate, 1),
		memory: state{catalogue: newCatalogue(), pulls: map[string]*pull{}, kept: map[string]leftover{}},
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

// SetInUse sets the function that reports whether a machine has the image of a digest. It is
// called, without any lock held, before an image is evicted, pruned or removed.
// Nil, the default: none is in use.
func (s *Store) SetInUse(f func(digest string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.inUse = f
}

// Changed receives a value when the result of List may have changed: an image
// was added or removed, a pull has begun or ended. Values coalesce.
func (s *Store) Changed() <-chan struct{} { return s.changed }

func (s *Store) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // one is waiting already
	}
}

// Has reports whether an image is here, unpacked. It reads only memory.
func (s *Store) Has(ref bourse.ImageRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.catalogue.find(ref) != nil
}

// Missing returns the bytes that a pull of an image for an organisation would
// fetch now: 0 for one that is here, and for another one the layers that no
// image here has. It is false when nothing is known of the image that its
// registry has shown to that organisation. It reads only memory.
func (s *Store) Missing(org, name string) (int64, bool) {
	ref := bourse.ParseImageRef(name)
	who := s.hosts.asker(org, ref.Registry)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory.catalogue.missing(ref, who, time.Now())
}

// Used notes that a machine was started from an image. The time reaches
// containerd a little later.
func (s *Store) Used(digest string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.memory.catalogue.byDigest(digest) {
		r.usedAt, r.dirty = now, true
	}
}

// List returns the images that are here and those being pulled, ordered by name.
// It reads only memory; the context is passed to the function of SetInUse.
func (s *Store) List(ctx context.Context) ([]bourse.Image, error) {
	s.mu.Lock()
	inUse := s.memory.inUse
	var out []bourse.Image
	for _, r := range s.memory.catalogue.sorted() {
		out = append(out, r.image())
	}
	for name, p := range s.memory.pulls {
		if _, ok := s.memory.catalogue.records[name]; !ok {
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

// containerd returns the connection, and a context of the namespace.
func (s *Store) containerd(ctx context.Context) (context.Context, *containerd.Client, error) {
	c, err := s.connect()
	if err != nil {
		return ctx, nil, bourse.Errorf(bourse.CodeUnavailable, "containerd: %w", err)
	}
	return s.within(ctx), c, nil
}

// within returns a context of the store's namespace. The client's own log, a line
// for every request that fails, is not ours.
func (s *Store) within(ctx context.Context) context.Context {
	quiet := &logrus.Logger{Out: io.Discard, Formatter: &logrus.TextFormatter{}, Hooks: logrus.LevelHooks{}, Level: logrus.PanicLevel}
	return log.WithLogger(namespaces.WithNamespace(ctx, s.config.Namespace), logrus.NewEntry(quiet))
}

// Close ends the pulls in progress, which a later Run resumes, and waits for them.
// Run calls it.
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
