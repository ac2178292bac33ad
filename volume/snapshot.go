package volume

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/bourse-dev/bourse"
)

// Info is what a snapshot is.
type Info struct {
	Bytes  int64  // that it takes of the host's disk, blocks shared with its volume included
	Digest string // of its manifest
	SizeGB int64  // of the volume when it was made
}

// Snapshot keeps the volume's content at one moment, mounted or not; see
// capture for how long writers wait. A snapshot that is there is described as
// it is. It reports CodeInsufficient when the host's disk is full; then nothing
// is left behind.
func (s *Store) Snapshot(ctx context.Context, id bourse.VolumeID, snap bourse.SnapshotID) (Info, error) {
	if err := errors.Join(id.Validate(), snap.Validate()); err != nil {
		return Info{}, err
	}
	unlock, err := s.locks.lock(ctx, string(snap))
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	err = s.create(string(snap), func() error { return s.keep(ctx, string(id), string(snap), isNew, "") })
	if err != nil {
		return Info{}, err
	}
	return s.info(string(snap))
}

// keep captures a volume into the directory of another thing, with all that is
// needed to read it without the volume.
func (s *Store) keep(ctx context.Context, id, into string, at stage, name string) error {
	if err := s.need(id); err != nil {
		return err
	}
	f, err := makeImage(s.path(into, at, imageFile), 0)
	if err != nil {
		return failed(err, "keep %s", id)
	}
	m, err := s.capture(ctx, id, f)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = s.keepKey(id, into, at, m.Encrypted)
	}
	if err == nil {
		m.ID = name
		if m.ID == "" {
			m.ID = into
		}
		var b []byte
		if b, err = json.Marshal(m); err == nil {
			err = writeFile(s.path(into, at, manifestFile), b)
		}
	}
	return failed(err, "keep %s", id)
}

// keepKey notes which volume's key opens a copy of an encrypted volume.
func (s *Store) keepKey(id, into string, at stage, crypted bool) error {
	if !crypted {
		return nil
	}
	owner, err := os.ReadFile(s.path(id, complete, keyOfFile))
	if errors.Is(err, os.ErrNotExist) {
		owner, err = []byte(id), nil
	}
	return errors.Join(err, writeFile(s.path(into, at, keyOfFile), owner))
}

func (s *Store) info(id string) (Info, error) {
	m, err := s.readManifest(id, complete)
	if err != nil {
		return Info{}, err
	}
	f, err := os.Open(s.path(id, complete, imageFile))
	if err != nil {
		return Info{}, damaged(id, "its image is missing")
	}
	bytes, err := allocated(f)
	return Info{Bytes: bytes, Digest: m.Digest, SizeGB: (m.Bytes + gib - 1) / gib}, failed(errors.Join(err, f.Close()), "size of %s", id)
}

// readManifest reads that of a snapshot or of a fork's copy.
func (s *Store) readManifest(id string, at stage) (Manifest, error) {
	b, err := os.ReadFile(s.path(id, at, manifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return Manifest{}, damaged(id, "its manifest is missing")
	}
	if err != nil {
		return Manifest{}, failed(err, "read the manifest of %s", id)
	}
	m, err := DecodeManifest(b)
	if err != nil {
		return Manifest{}, damaged(id, err.Error())
	}
	return m, nil
}
