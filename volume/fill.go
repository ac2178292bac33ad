package volume

import (
	"context"
	"errors"
	"os"

	"github.com/bourse-dev/bourse"
)

// Fill creates a volume with the content of its source; the volume must be at least as large as
// the source. If the source fails or the daemon crashes, the received data remains until the volume is
// destroyed, and the next call of Fill fetches only the rest. The content is verified before the volume
// becomes visible. If the volume exists, Fill does nothing.
//
// Errors: CodeInvalid if the stream is malformed or does not fit the order; CodeUnavailable if the source fails, or
// repeatedly sends content that does not match its checksum; CodeInsufficient if the host's disk is full, in which case
// the received data is removed.
func (s *Store) Fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, src Source) error {
	return s.fill(ctx, id, spec, func(f *filler) error { return f.receive(ctx, src) })
}

// Copy is like Fill, but the source is a volume or snapshot in this store. The copy shares blocks
// with the source if the host's file system supports that. After a crash, the next call of Copy starts
// from the beginning.
func (s *Store) Copy(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, from string) error {
	return s.fill(ctx, id, spec, func(f *filler) error { return f.copy(ctx, from) })
}

func (s *Store) fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, fetch func(*filler) error) error {
	if err := s.check(id, spec); err != nil {
		return err
	}
	unlock, err := s.locks.lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	if exists, err := s.has(string(id), stageComplete); err != nil || exists {
		return err
	}
	f := &filler{s: s, id: string(id), spec: spec}
	fetched, err := s.has(f.id, stageReady)
	if err == nil && !fetched {
		err = fetch(f)
		if err == nil {
			s.step("fetched")
			err = s.advance(f.id, stageFilling, stageReady)
		}
		if bourse.CodeOf(err) == bourse.CodeInsufficient { // the disk is full, so free the space of the partial copy
			err = errors.Join(err, s.clear(f.id, stageFilling))
		}
	}
	if err != nil {
		return err
	}
	return f.finish(ctx)
}

// filler is the state of one call of Fill or Copy.
type filler struct {
	s    *Store
	id   string
	spec bourse.VolumeOrder
}

// checkContent returns CodeInvalid if the content cannot fill the ordered volume.
func (f *filler) checkContent(c *content) error {
	if c.Bytes > f.spec.SizeGB*gib {
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: the source has %d bytes", f.spec.SizeGB, c.Bytes)
	}
	if c.Encrypted != f.spec.Encrypted {
		return bourse.Errorf(bourse.CodeInvalid, "invalid encrypted %t: a copy must have the same setting as its source", f.spec.Encrypted)
	}
	return nil
}

// copy captures a volume, or copies a snapshot and verifies the copy.
func (f *filler) copy(ctx context.Context, from string) error {
	if err := f.s.begin(f.id, stageFilling); err != nil { // this discards the partial copy of an earlier attempt, which cannot be resumed
		return err
	}
	f.s.step("filling")
	if bourse.SnapshotID(from).Validate() != nil {
		c, err := f.s.captureInto(ctx, from, f.id, stageFilling)
		if err != nil {
			return err
		}
		return f.checkContent(&c)
	}
	c, err := f.s.readContent(from)
	if err == nil {
		err = f.checkContent(&c)
	}
	if err != nil {
		return err
	}
	src, _, err := f.s.openImage(from, stageComplete)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // Close cannot lose data, because the file is only read
	dst, err := makeImage(f.s.path(f.id, stageFilling, imageFile), 0)
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	digest, err := f.copySnapshot(ctx, dst, src, &c)
	if err := errors.Join(err, dst.Sync(), dst.Close()); err != nil {
		return failed(err, "fill %s", f.id)
	}
	if digest != c.Digest {
		return damaged(from, "its content has changed")
	}
	return errors.Join(f.s.keepKey(from, f.id, stageFilling, c.Encrypted), f.s.keepVM(f.id, stageFilling, &c))
}

func (f *filler) copySnapshot(ctx context.Context, dst, src *os.File, c *content) (digest string, err error) {
	cloned, err := f.s.clone(dst, src)
	if err == nil && !cloned {
		if err = dst.Truncate(c.Bytes); err == nil {
			_, err = copyImage(ctx, src, dst, c.Bytes)
		}
	}
	if err != nil {
		return "", err
	}
	return digestOf(ctx, dst, c)
}

// finish turns the fetched image into the new volume's image. Each step may be repeated.
func (f *filler) finish(ctx context.Context) error {
	path := f.s.path(f.id, stageReady, imageFile)
	vm, err := f.s.isVM(f.id, stageReady)
	switch {
	case err != nil:
	case f.spec.Encrypted:
		err = f.replaceKey(ctx)
	case !vm:
		err = renewIdentity(ctx, f.id, path)
	}
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	f.s.step("own")
	image, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	st, err := image.Stat()
	grows := err == nil && st.Size() < f.spec.SizeGB*gib
	if grows {
		err = image.Truncate(f.spec.SizeGB * gib)
	}
	err = errors.Join(err, image.Sync(), image.Close(), f.drop(progressFile, progressNew))
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	if err := f.s.advance(f.id, stageReady, stageComplete); err != nil {
		return err
	}
	f.s.step("filled")
	if !grows {
		return nil
	}
	return f.s.grow(ctx, f.id)
}

// drop removes the named files from the directory of the fetched image. It ignores missing files.
func (f *filler) drop(files ...string) error {
	for _, file := range files {
		if err := os.Remove(f.s.path(f.id, stageReady, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// replaceKey makes the image accept the volume's own key instead of the source's key, which receive has
// stored next to the image.
func (f *filler) replaceKey(ctx context.Context) error {
	old, err := os.ReadFile(f.s.path(f.id, stageReady, sourceKeyFile))
	if errors.Is(err, os.ErrNotExist) { // the source is on this host, so its key is known
		old, err = f.s.keyOf(f.id, stageReady)
	}
	if err != nil {
		return err
	}
	if err := f.s.rekey(ctx, f.id, stageReady, old); err != nil {
		return err
	}
	return f.drop(sourceKeyFile, keyFile)
}
