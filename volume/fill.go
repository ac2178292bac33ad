package volume

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Fill makes a volume with the content of a source, at least as large as it.
// Each chunk is verified. What is verified survives a crash or a broken source
// until Destroy: a repetition fetches the rest. An existing volume is left as it
// is.
//
// It reports CodeInvalid for a malformed manifest, or one that does
// not fit the order; CodeUnavailable when the source fails or sends chunks
// that differ from its manifest, after some tries; CodeInsufficient when the host's disk is
// full.
func (s *Store) Fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, src Source) error {
	if err := s.check(id, spec); err != nil {
		return err
	}
	unlock, err := s.locks.lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	if there, err := s.has(string(id), complete); err != nil || there {
		return err
	}
	f := &filler{s: s, id: string(id), spec: spec, src: src}
	fetched, err := s.has(string(id), ready)
	if err == nil && !fetched {
		err = f.fetch(ctx)
	}
	if err != nil {
		return err
	}
	return f.finish(ctx)
}

// filler is the work of one Fill.
type filler struct {
	s    *Store
	id   string
	spec bourse.VolumeOrder
	src  Source
}

// suits reports CodeInvalid unless the content may fill what was ordered.
func (f *filler) suits(m Manifest) error {
	if err := m.Validate(); err != nil {
		return err
	}
	if m.Bytes > f.spec.SizeGB*gib {
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: the source has %d bytes", f.spec.SizeGB, m.Bytes)
	}
	if m.Encrypted != f.spec.Encrypted {
		return bourse.Errorf(bourse.CodeInvalid, "invalid encrypted %t: a copy is encrypted when its source is", f.spec.Encrypted)
	}
	return nil
}

// fetch brings the content here, complete and verified.
func (f *filler) fetch(ctx context.Context) error {
	begun, err := f.s.has(f.id, filling)
	if err == nil && !begun {
		err = f.s.begin(f.id, filling)
	}
	if err != nil {
		return err
	}
	f.s.step("filling")
	err = f.share(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		err = f.fetchChunks(ctx)
	}
	if bourse.CodeOf(err) == bourse.CodeInsufficient { // it takes space from volumes whose data is complete
		return errors.Join(err, f.s.clear(f.id, filling))
	}
	if err != nil {
		return err
	}
	f.s.step("fetched")
	return f.s.advance(f.id, filling, ready)
}

// share takes the content of a source on this host without a detour: a volume
// is captured, a snapshot is cloned. It reports ErrUnsupported when this is no
// such source.
func (f *filler) share(ctx context.Context) error {
	l, ok := f.src.(*local)
	if !ok || l.store != f.s {
		return errors.ErrUnsupported
	}
	if bourse.VolumeID(l.id).Validate() == nil {
		return f.captured(ctx, l.id)
	}
	if f.s.noClone.Load() || bourse.SnapshotID(l.id).Validate() != nil {
		return errors.ErrUnsupported
	}
	return f.cloned(ctx, l)
}

func (f *filler) captured(ctx context.Context, id string) error {
	if err := f.s.begin(f.id, filling); err != nil { // half of another moment is worthless
		return err
	}
	if err := f.s.keep(ctx, id, f.id, filling, id); err != nil {
		return err
	}
	m, err := f.s.readManifest(f.id, filling)
	if err != nil {
		return err
	}
	return f.suits(m)
}

func (f *filler) cloned(ctx context.Context, l *local) error {
	m, err := l.Manifest(ctx)
	if err == nil {
		err = f.suits(m)
	}
	if err != nil {
		return err
	}
	src, err := os.Open(f.s.path(l.id, complete, imageFile))
	if err != nil {
		return damaged(l.id, "its image is missing")
	}
	defer func() { _ = src.Close() }() // only read
	dst, err := makeImage(f.s.path(f.id, filling, imageFile), 0)
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	defer func() { _ = dst.Close() }() // it was synced
	if err := clone(dst, src); err != nil {
		if cannotClone(err) {
			f.s.noClone.Store(true)
			return errors.ErrUnsupported
		}
		return failed(err, "fill %s", f.id)
	}
	all, err := sumImage(ctx, dst, nil, m.Bytes)
	if err == nil {
		err = dst.Sync()
	}
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	got := all.manifest(m.Bytes)
	if !slices.Equal(got.Chunks, m.Chunks) {
		return damaged(l.id, "its content is not what it was")
	}
	return f.s.keepKey(l.id, f.id, filling, m.Encrypted)
}

// finish makes the fetched image the volume's own. Each part of it may be
// repeated.
func (f *filler) finish(ctx context.Context) error {
	path := f.s.path(f.id, ready, imageFile)
	var err error
	if f.spec.Encrypted {
		err = f.ownKey(ctx)
	} else {
		err = ownImage(ctx, f.id, path)
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
	if err := errors.Join(err, image.Sync(), image.Close()); err != nil {
		return failed(err, "fill %s", f.id)
	}
	for _, file := range []string{journalFile, manifestFile} {
		if err := os.Remove(f.s.path(f.id, ready, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return failed(err, "fill %s", f.id)
		}
	}
	if err := f.s.advance(f.id, ready, complete); err != nil {
		return err
	}
	f.s.step("filled")
	if !grows {
		return nil
	}
	return f.s.grow(ctx, f.id)
}

// ownKey makes the volume's own key open its image, instead of the source's. The
// source's key is where fetch has put it: beside the image.
func (f *filler) ownKey(ctx context.Context) error {
	sealed := f.s.path(f.id, ready, sourceKeyFile)
	old, err := os.ReadFile(sealed)
	if errors.Is(err, os.ErrNotExist) { // a source on this host, whose key is known
		if old, err = f.s.keyOf(f.id, ready); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := f.s.rekey(ctx, f.id, ready, old); err != nil {
		return err
	}
	for _, file := range []string{sourceKeyFile, keyOfFile} {
		if err := os.Remove(f.s.path(f.id, ready, file)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
