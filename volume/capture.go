package volume

import (
	"context"
	"errors"
	"iter"
	"os"
	"time"

	"github.com/bourse-dev/bourse"
)

// capture copies the volume's image, as it is at one moment, to the empty file dst. If the host's file system can share
// blocks, writers to the volume are blocked for a few milliseconds. If it cannot, the image is first copied while
// writers continue, and writers are then blocked while the image is read again to find the changes. Nothing is blocked
// if the volume is not mounted. If a virtual machine is using the volume, the host cannot block its writers. In that
// case, capture returns CodeFailedPrecondition if blocks cannot be shared; otherwise, the copy contains what the disk
// would contain after a power failure. The caller must sync dst, and must hold the lock of the object to which dst
// belongs.
func (s *Store) capture(ctx context.Context, id string, dst *os.File) (content, error) {
	c := &capture{s: s, id: id, dst: dst, changes: s.mountCount(id)}
	if err := c.open(); err != nil {
		return content{}, err
	}
	defer func() { _ = c.src.Close() }() // Close cannot lose data, because the file is only read
	if err := dst.Truncate(c.content.Bytes); err != nil {
		return content{}, err
	}
	cloned, err := c.clone(ctx)
	if err == nil && !cloned {
		err = c.copy(ctx)
	}
	s.step("captured")
	return c.content, err
}

// capture is the state of one call of Store.capture.
type capture struct {
	s       *Store
	id      string
	src     *os.File
	dst     *os.File
	content content
	changes int // the volume's mount count when the capture began
	sums    sums
}

func (c *capture) open() (err error) {
	if err := c.s.requireComplete(c.id); err != nil {
		return err
	}
	c.src, c.content, err = c.s.openImage(c.id, stageComplete)
	return err
}

// clone tries to make dst share the image's blocks. cloned reports whether that succeeded.
func (c *capture) clone(ctx context.Context) (cloned bool, err error) {
	if c.s.noClone.Load() {
		return false, nil
	}
	err = c.whileFrozen(ctx, func(bool) (err error) { cloned, err = c.s.clone(c.dst, c.src); return err })
	return cloned, failed(err, "clone %s", c.id)
}

// clone makes dst share the blocks of src. It returns false if the host's file system does not
// support that.
func (s *Store) clone(dst, src *os.File) (bool, error) {
	if s.noClone.Load() {
		return false, nil
	}
	err := clone(dst, src)
	if err != nil && cannotClone(err) {
		s.noClone.Store(true)
		return false, nil
	}
	return err == nil, err
}

// copy copies the image while writers continue. It then blocks writers and copies what has changed.
func (c *capture) copy(ctx context.Context) (err error) {
	if err := c.s.Copyable(bourse.VolumeID(c.id)); err != nil {
		return err
	}
	if c.sums, err = copyImage(ctx, c.src, c.dst, c.content.Bytes); err != nil {
		return failed(err, "copy %s", c.id)
	}
	c.s.step("copied")
	return failed(c.whileFrozen(ctx, func(frozen bool) error {
		if !frozen && c.changes == c.s.mountCount(c.id) {
			return nil // the volume was not mounted during the copy
		}
		if err := c.s.Copyable(bourse.VolumeID(c.id)); err != nil {
			return err
		}
		return c.recopy(ctx)
	}), "copy %s", c.id)
}

// whileFrozen calls do while the volume is locked and, if it is mounted, frozen, so that no process on the host can
// write to it. It thaws the volume before it returns, even after an error.
func (c *capture) whileFrozen(ctx context.Context, do func(frozen bool) error) error {
	unlock, err := c.s.locks.lock(ctx, c.id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.s.requireComplete(c.id); err != nil { // the volume may have been destroyed in the meantime
		return err
	}
	if err := c.resize(); err != nil {
		return err
	}
	if c.content.VM, err = c.s.isVM(c.id, stageComplete); err != nil { // the volume may have been attached to a virtual machine in the meantime
		return err
	}
	target := c.s.path(c.id, stageComplete, mountDir)
	device, err := mountedOn(target)
	if err != nil || device == "" {
		return errors.Join(err, do(false))
	}
	// Flush dirty data before freezing. Otherwise, freeze would flush it while all writers are blocked.
	if err := flush(target); err != nil {
		return err
	}
	if err := freeze(target); err != nil {
		return err
	}
	began := time.Now()
	defer func() {
		if err := thaw(target); err != nil {
			c.s.log.Error("thaw volume failed", "volume", c.id, "err", err)
		}
		c.s.log.Debug("volume was frozen", "volume", c.id, "for", time.Since(began))
	}()
	c.s.step("frozen")
	return do(true)
}

// resize adjusts dst if the volume was extended during the capture, because data may now be
// beyond the old end.
func (c *capture) resize() error {
	st, err := c.src.Stat()
	if err != nil || st.Size() == c.content.Bytes {
		return err
	}
	c.content.Bytes = st.Size()
	return c.dst.Truncate(c.content.Bytes)
}

// recopy updates dst by copying the chunks of the image that have changed since they were copied.
// It recognizes these chunks by their checksums.
func (c *capture) recopy(ctx context.Context) error {
	size := c.content.Bytes
	return eachChunk(ctx, c.everyChunk(), func(n int, buf []byte) error {
		was, had := c.sums[n]
		now, data, err := sumChunk(c.src, nil, size, n, buf)
		if err != nil || had == data && (!data || was == now) {
			return err
		}
		if had {
			if err := punchHole(c.dst, int64(n)*chunkBytes, chunkLength(size, n)); err != nil {
				return err
			}
		}
		_, _, err = sumChunk(c.src, c.dst, size, n, buf)
		return err
	})
}

// everyChunk returns the chunks that now contain data, followed by the chunks that contained
// data when they were copied but are now holes.
func (c *capture) everyChunk() iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		seen := map[int]bool{}
		for n, err := range dataChunks(c.src, c.content.Bytes) {
			seen[n] = true
			if !yield(n, err) {
				return
			}
		}
		for n := range c.sums {
			if !seen[n] && !yield(n, nil) {
				return
			}
		}
	}
}
