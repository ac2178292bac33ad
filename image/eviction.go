package image

import (
	"context"
	"time"

	containerd "github.com/containerd/containerd/v2/client"

	"github.com/bourse-dev/bourse"
)

// activePart is the key under which the layer that is being unpacked appears in a pull's parts.
const activePart = "active"

// While a layer is being unpacked, its size is measured every measureEvery. A measurement can take a long time, because
// containerd visits all of the layer's files. In that case, the interval is extended to measureShare times the
// measurement's duration.
const (
	measureEvery = 200 * time.Millisecond
	measureShare = 10
)

// watch starts a goroutine that measures the layer that is being unpacked, frees space for it, and cancels the
// pull if there is not enough space. The returned function stops this goroutine and waits for it.
func (s *Store) watch(ctx context.Context, w *measuringSnapshotter) func() {
	if s.config.Budget == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pause := measureEvery
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			began := time.Now()
			if err := s.measure(ctx, w); err != nil && bourse.CodeOf(err) == bourse.CodeInsufficient {
				w.pull.cancel(err)
				return
			}
			pause = max(measureEvery, measureShare*time.Since(began))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// measure updates the size of the layer that is being unpacked, and makes room for it.
func (s *Store) measure(ctx context.Context, w *measuringSnapshotter) error {
	w.mu.Lock()
	key := w.active
	w.mu.Unlock()
	if key == "" {
		return nil
	}
	used, err := w.Usage(ctx, key)
	if err != nil {
		return err // the layer was completed or removed in the meantime
	}
	s.addParts(w.pull, parts{activePart: used.Size})
	return s.makeRoom(ctx, w.client, w.pull)
}

// makeRoom evicts images and leftover data until all images and pulls fit into the budget. p is the pull that needs the
// room, or nil. If evicting everything that is not in use would not free enough space, the result depends on p: for a
// pull, makeRoom evicts nothing and returns CodeInsufficient; if p is nil, it evicts everything that is not in use.
func (s *Store) makeRoom(ctx context.Context, c *containerd.Client, p *pull) error {
	if s.config.Budget == 0 {
		return nil
	}
	leave, err := s.evicting.acquire(ctx)
	if err != nil {
		return err
	}
	defer leave()
	diskUsers, inUse := s.diskUsers()
	if diskUsage(diskUsers) <= s.config.Budget {
		return nil
	}
	for i, h := range diskUsers {
		diskUsers[i].inUse = h.inUse || inUse != nil && h.digest != "" && inUse(h.digest)
	}
	names, left := selectEvictions(diskUsers, s.config.Budget)
	if p != nil && left > s.config.Budget {
		return bourse.Errorf(bourse.CodeInsufficient,
			"image %s takes at least %d bytes; with it, the images in use would take %d bytes, but the worker has %d for images",
			p.ref.String(), s.sizeOf(p), left, s.config.Budget)
	}
	return s.evict(ctx, c, names)
}

func (s *Store) sizeOf(p *pull) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.parts.sum()
}

// diskUsers returns everything that occupies disk space, and the function that was passed to SetInUse.
func (s *Store) diskUsers() ([]diskUser, func(string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []diskUser
	for name, r := range s.memory.catalog.records {
		out = append(out, diskUser{name: name, digest: r.ref.Digest, parts: r.parts, usedAt: r.usedAt})
	}
	for name, p := range s.memory.pulls {
		copied := parts{}
		for part, size := range p.parts {
			if part == activePart {
				part = activePart + " " + name // distinguish the parts of different pulls
			}
			copied[part] = size
		}
		out = append(out, diskUser{name: "pull " + name, parts: copied, inUse: true})
	}
	for name, k := range s.memory.leftovers { // evicted first, because usedAt is zero
		out = append(out, diskUser{name: name, parts: k.parts})
	}
	return out, s.memory.inUse
}

// evict removes images and the data of failed pulls.
func (s *Store) evict(ctx context.Context, c *containerd.Client, names []string) error {
	var here []string
	for _, name := range names {
		s.mu.Lock()
		left, ok := s.memory.leftovers[name]
		s.mu.Unlock()
		if !ok {
			here = append(here, name)
			continue
		}
		if err := s.dropKept(ctx, c, left.ref); err != nil {
			return err
		}
	}
	for _, name := range here {
		s.config.Log.Info("image evicted", "image", name)
	}
	return s.remove(ctx, c, here)
}
