package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// memImages holds a host's images and a registry in memory. It outlives the daemons
// that use it.
type memImages struct {
	changed chan struct{}

	mu       sync.Mutex
	registry map[string]bourse.Image // images by name
	private  map[string]string       // names of private images, with the organization that may pull them
	asked    []string                // the organizations for which images were pulled
	here     map[string]bourse.Image // images on the host, by digest
	pulls    int
	takes    time.Duration // how long a pull takes
	inUse    func(digest string) bool
	fault    func(ctx context.Context, call string, after bool) error
}

func newMemImages() *memImages {
	return &memImages{
		changed: make(chan struct{}, 1), takes: time.Second,
		registry: map[string]bourse.Image{}, here: map[string]bourse.Image{},
	}
}

// push puts an image into the registry under a name.
func (f *memImages) push(name string, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ref := bourse.ParseImageRef(name)
	ref.Digest = digestOf(name)
	f.registry[name] = bourse.Image{Ref: ref, Bytes: bytes, Disk: 2 * bytes}
}

func (f *memImages) failing(fault func(ctx context.Context, call string, after bool) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// call calls the fault before and after fn.
func (f *memImages) call(ctx context.Context, name string, fn func() error) error {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault == nil {
		fault = func(context.Context, string, bool) error { return nil }
	}
	if err := fault(ctx, name, false); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	return fault(ctx, name, true)
}

func (f *memImages) Resolve(ctx context.Context, org, name string) (ref bourse.ImageRef, err error) {
	return ref, f.call(ctx, "Resolve", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		image, ok := f.registry[name]
		if only, private := f.private[name]; !ok || private && only != org {
			return bourse.Errorf(bourse.CodeNotFound, "the registry has no %s", bourse.Quoted(name))
		}
		ref = image.Ref
		return nil
	})
}

func (f *memImages) Pull(ctx context.Context, org string, ref bourse.ImageRef, progress func(bourse.Image)) (image bourse.Image, err error) {
	return image, f.call(ctx, "Pull", func() error {
		image = f.byDigest(ref.Digest)
		if progress != nil {
			half := image
			half.Pull = &bourse.PullProgress{Status: "pulling", Bytes: image.Bytes / 2, Total: image.Bytes}
			progress(half)
		}
		select {
		case <-time.After(f.takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.here[ref.Digest] = image
		f.pulls++
		f.asked = append(f.asked, org)
		f.poke()
		return nil
	})
}

func (f *memImages) byDigest(digest string) bourse.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, image := range f.registry {
		if image.Ref.Digest == digest {
			return image
		}
	}
	return bourse.Image{}
}

func (f *memImages) poke() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *memImages) Has(ref bourse.ImageRef) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.here[ref.Digest]
	return ok
}

func (f *memImages) Missing(org, name string) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if only, private := f.private[name]; private && only != org {
		return 0, false
	}
	for _, image := range f.here {
		if image.Ref.String() == name || f.registry[name].Ref.Digest == image.Ref.Digest {
			return 0, true
		}
	}
	return 0, false
}

func (f *memImages) MarkUsed(string) {}

func (f *memImages) List(ctx context.Context) (out []bourse.Image, err error) {
	return out, f.call(ctx, "List", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		out = slices.Collect(maps.Values(f.here))
		slices.SortFunc(out, func(a, b bourse.Image) int { return strings.Compare(a.Ref.Digest, b.Ref.Digest) })
		return nil
	})
}

// Prune removes the images that the worker does not use.
func (f *memImages) Prune(ctx context.Context) (out []bourse.Image, err error) {
	list, err := f.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, image := range list {
		if f.used(image.Ref.Digest) {
			continue
		}
		out = append(out, image)
		f.mu.Lock()
		delete(f.here, image.Ref.Digest)
		f.poke()
		f.mu.Unlock()
	}
	return out, nil
}

func (f *memImages) used(digest string) bool {
	f.mu.Lock()
	inUse := f.inUse
	f.mu.Unlock()
	return inUse(digest)
}

func (f *memImages) SetInUse(inUse func(digest string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inUse = inUse
}

func (f *memImages) Changed() <-chan struct{} { return f.changed }

func (f *memImages) pulled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pulls
}

var _ Images = (*memImages)(nil)

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}
