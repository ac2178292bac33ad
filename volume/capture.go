package volume

import (
	"context"
	"errors"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// capture makes dst, an empty file, a copy of the volume's image at one moment,
// and returns its manifest. Where the host's file system shares blocks, writers
// wait some milliseconds. Elsewhere everything is copied while they write, and
// they wait while it is read once more to find what changed: as long as the
// host needs to read the volume's data. For a volume that is not mounted
// nothing waits. The caller syncs dst, and has the lock of the id of dst.
func (s *Store) capture(ctx context.Context, id string, dst *os.File) (Manifest, error) {
	c := &capturing{s: s, id: id, dst: dst, changes: s.mountCount(id)}
	if err := c.open(); err != nil {
		return Manifest{}, err
	}
	defer func() { _ = c.src.Close() }() // only read
	if err := dst.Truncate(c.size); err != nil {
		return Manifest{}, err
	}
	cloned, err := c.clone(ctx)
	switch {
	case err != nil:
	case cloned:
		c.sums, err = sumImage(ctx, dst, nil, c.size)
	default:
		err = c.copy(ctx)
	}
	if err != nil {
		return Manifest{}, err
	}
	s.step("captured")
	m := c.sums.manifest(c.size)
	m.Volume, m.Encrypted = bourse.VolumeID(id), c.crypted
	m.Digest = m.sum()
	return m, nil
}

// capturing is the work of one capture.
type capturing struct {
	s       *Store
	id      string
	src     *os.File
	dst     *os.File
	size    int64
	crypted bool
	changes int // the volume's mount count when it began
	sums    sums
}

func (c *capturing) open() error {
	if err := c.s.need(c.id); err != nil {
		return err
	}
	src, err := os.Open(c.s.path(c.id, complete, imageFile))
	if errors.Is(err, os.ErrNotExist) {
		return damaged(c.id, "its image is missing")
	}
	if err != nil {
		return failed(err, "open %s", c.id)
	}
	st, err := src.Stat()
	if err == nil {
		c.src, c.size = src, st.Size()
		c.crypted, err = encrypted(src)
	}
	if err != nil {
		return failed(errors.Join(err, src.Close()), "read %s", c.id)
	}
	return nil
}

// clone tries to share the image's blocks.
func (c *capturing) clone(ctx context.Context) (bool, error) {
	if c.s.noClone.Load() {
		return false, nil
	}
	err := c.still(ctx, func(bool) error { return clone(c.dst, c.src) })
	if err != nil && cannotClone(err) {
		c.s.noClone.Store(true)
		return false, nil
	}
	return err == nil, failed(err, "clone %s", c.id)
}

// copy copies the image while it may change, and then what changed while it
// cannot.
func (c *capturing) copy(ctx context.Context) (err error) {
	if c.sums, err = sumImage(ctx, c.src, c.dst, c.size); err != nil {
		return failed(err, "copy %s", c.id)
	}
	c.s.step("copied")
	return failed(c.still(ctx, func(frozen bool) error {
		if !frozen && c.changes == c.s.mountCount(c.id) {
			return nil // it was not mounted in all this time
		}
		return c.recopy(ctx)
	}), "copy %s", c.id)
}

// still calls do while nothing writes to the volume: locked, and frozen when it
// is mounted. It always thaws.
func (c *capturing) still(ctx context.Context, do func(frozen bool) error) error {
	unlock, err := c.s.locks.lock(ctx, c.id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.s.need(c.id); err != nil { // destroyed meanwhile
		return err
	}
	if err := c.resize(); err != nil {
		return err
	}
	target := c.s.path(c.id, complete, mountDir)
	device, err := mountedOn(target)
	if err != nil || device == "" {
		return errors.Join(err, do(false))
	}
	// What is written now need not be while all writers wait.
	if err := flush(target); err != nil {
		return err
	}
	if err := freeze(target); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		if err := thaw(target); err != nil {
			c.s.log.Error("volume does not thaw", "volume", c.id, "err", err)
		}
		c.s.log.Debug("volume was frozen", "volume", c.id, "for", time.Since(began))
	}()
	c.s.step("frozen")
	return do(true)
}

// resize adjusts to a volume that was extended since: its data may now be
// beyond its old end.
func (c *capturing) resize() error {
	st, err := c.src.Stat()
	if err != nil || st.Size() == c.size {
		return err
	}
	c.size = st.Size()
	return c.dst.Truncate(c.size)
}

// recopy brings dst up to date with the image, whose chunks are compared by a
// quick sum with what was copied.
func (c *capturing) recopy(ctx context.Context) error {
	var mu sync.Mutex
	return eachChunk(ctx, c.everyChunk(), func(n int, buf []byte) error {
		mu.Lock()
		was, had := c.sums[n]
		mu.Unlock()
		quick, has, err := quickSum(c.src, c.size, n, buf)
		if err != nil || (had == has && (!has || was.quick == quick)) {
			return err
		}
		if had {
			if err := punch(c.dst, int64(n)*ChunkBytes, chunkLength(c.size, n)); err != nil {
				return err
			}
		}
		sum, has, err := copyChunk(c.src, c.dst, c.size, n, buf)
		mu.Lock()
		defer mu.Unlock()
		delete(c.sums, n)
		if has {
			c.sums[n] = sum
		}
		return err
	})
}

// everyChunk returns those that have data now, then those that had data only
// before.
func (c *capturing) everyChunk() iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		seen := map[int]bool{}
		had := make([]int, 0, len(c.sums))
		for n := range c.sums { // before anybody changes it
			had = append(had, n)
		}
		for n, err := range dataChunks(c.src, c.size) {
			seen[n] = true
			if !yield(n, err) {
				return
			}
		}
		for _, n := range had {
			if !seen[n] && !yield(n, nil) {
				return
			}
		}
	}
}
