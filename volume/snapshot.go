package volume

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/bourse-dev/bourse"
)

// Info describes a snapshot.
type Info struct {
	Bytes  int64  // disk space that the snapshot occupies on the host, including blocks that it shares with the volume
	Digest string // digest of the content
	SizeGB int64  // size of the volume when the snapshot was created
}

// Snapshot takes a point-in-time snapshot of a volume. The volume may be mounted; capture describes how long its
// writers are blocked. If the snapshot already exists, Snapshot only returns its description. If the host's disk is
// full, Snapshot returns CodeInsufficient and leaves no files behind.
func (s *Store) Snapshot(ctx context.Context, id bourse.VolumeID, snap bourse.SnapshotID) (Info, error) {
	if err := errors.Join(id.Validate(), snap.Validate()); err != nil {
		return Info{}, err
	}
	unlock, err := s.locks.lock(ctx, string(snap))
	if err != nil {
		return Info{}, err
	}
	defer unlock()
	err = s.create(string(snap), func() error {
		c, err := s.captureInto(ctx, string(id), string(snap), stageNew)
		if err != nil {
			return err
		}
		return s.describe(ctx, string(snap), c)
	})
	if err != nil {
		return Info{}, err
	}
	return s.info(string(snap))
}

// captureInto captures a volume into another object's directory, together with the data that is needed to read the copy
// without the volume.
func (s *Store) captureInto(ctx context.Context, id, into string, at stage) (content, error) {
	if err := s.requireComplete(id); err != nil {
		return content{}, err
	}
	f, err := makeImage(s.path(into, at, imageFile), 0)
	if err != nil {
		return content{}, failed(err, "copy %s", id)
	}
	c, err := s.capture(ctx, id, f)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = errors.Join(s.keepKey(id, into, at, c.Encrypted), s.keepVM(into, at, &c))
	}
	return c, failed(err, "copy %s", id)
}

// describe stores the description of a new snapshot, including its digest.
func (s *Store) describe(ctx context.Context, snap string, c content) error {
	f, err := os.Open(s.path(snap, stageNew, imageFile))
	if err == nil {
		c.Digest, err = digestOf(ctx, f, &c)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return failed(err, "read %s", snap)
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return failed(writeFile(s.path(snap, stageNew, contentFile), b), "describe %s", snap)
}

// keepKey stores the id of the volume whose key opens a copy of an encrypted volume.
func (s *Store) keepKey(id, into string, at stage, crypted bool) error {
	if !crypted {
		return nil
	}
	owner, err := os.ReadFile(s.path(id, stageComplete, keyFile))
	if errors.Is(err, os.ErrNotExist) {
		owner, err = []byte(id), nil
	}
	return errors.Join(err, writeFile(s.path(into, at, keyFile), owner))
}

func (s *Store) info(id string) (Info, error) {
	c, err := s.readContent(id)
	if err != nil {
		return Info{}, err
	}
	f, err := os.Open(s.path(id, stageComplete, imageFile))
	if err != nil {
		return Info{}, damaged(id, "its image is missing")
	}
	bytes, err := allocated(f)
	return Info{Bytes: bytes, Digest: c.Digest, SizeGB: (c.Bytes + gib - 1) / gib}, failed(errors.Join(err, f.Close()), "size of %s", id)
}

// readContent reads the description of a snapshot.
func (s *Store) readContent(id string) (content, error) {
	var c content
	if err := s.requireComplete(id); err != nil {
		return c, err
	}
	b, err := os.ReadFile(s.path(id, stageComplete, contentFile))
	if errors.Is(err, os.ErrNotExist) {
		return c, damaged(id, "its description is missing")
	}
	if err != nil {
		return c, failed(err, "read the description of %s", id)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, damaged(id, err.Error())
	}
	return c, nil
}
