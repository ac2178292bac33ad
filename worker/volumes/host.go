package volumes

import (
	"context"
	"io"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
)

// Host makes volumes on the host and copies them. It knows nothing of records:
// the worker decides, then it does. Every method may be repeated
// until it succeeds, also after a crash in the middle of it. Errors:
// unavailable may pass; not_found, invalid, failed_precondition (damaged) and
// insufficient_capacity (the host's disk is full) are answers.
type Host interface {
	Files
	Copies
	// Labels are the facts of the host's volumes: "volume" is there,
	// "volume.encrypted" where they can be.
	Labels() map[string]string
	// Recover removes everything that keep does not want, by the ids of
	// volumes, snapshots and machines with scratch space. It is called once,
	// before all else.
	Recover(ctx context.Context, keep func(id string) bool) error
}

// Files are file systems of a limited size.
type Files interface {
	Create(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder) error
	// Mount returns the directory at which the volume is.
	Mount(ctx context.Context, id bourse.VolumeID) (path string, err error)
	Unmount(ctx context.Context, id bourse.VolumeID) error
	// ExtendsLive reports whether a file system grows while it is in use, or else
	// when it is mounted next.
	ExtendsLive() bool
	// Extend makes a volume larger, also while it is in use.
	Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) error
	// Destroy removes a volume, also a half made one. Its snapshots stay.
	Destroy(ctx context.Context, id bourse.VolumeID) error
	Usage(ctx context.Context, id bourse.VolumeID) (bourse.VolumeUsage, error)
}

// Copies are snapshots of volumes, and copies to and from other workers.
// An id is a volume's or a snapshot's.
type Copies interface {
	Snapshot(ctx context.Context, id bourse.VolumeID, snap bourse.SnapshotID) (volume.Info, error)
	RemoveSnapshot(ctx context.Context, snap bourse.SnapshotID) error
	// Manifest describes the content. Of a volume it is that of one
	// moment, which is kept for a while for those who read its chunks.
	Manifest(ctx context.Context, id string) (volume.Manifest, error)
	Chunk(ctx context.Context, id string, n int, w io.Writer) error
	// Fill makes a volume with the content of a source, and goes on where an
	// earlier call was interrupted.
	Fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, src volume.Source) error
	// Release ends the reading of a manifest, by the manifest's id.
	Release(ctx context.Context, id string) error
	// Local is what is on this host as a source, which Fill takes by the short
	// way. It has to come to Fill as it is.
	Local(id string) volume.Source
}

// Peers are the other workers, as sources of volumes and snapshots.
type Peers interface {
	// Source returns the content of a volume or snapshot of the worker with this
	// tag, which that has granted to this one. Unavailable, timeout and canceled
	// may pass, all else is an answer.
	Source(ctx context.Context, tag bourse.WorkerTag, id, grant string) (volume.Source, error)
	// Release ends the reading of a manifest there, by the manifest's id. The
	// other worker does so by itself after some minutes.
	Release(ctx context.Context, tag bourse.WorkerTag, id, grant string) error
}

var errNoVolumes = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without volumes")

// noHost is the host of a worker that was started without volumes: those that
// it has records of wait.
type noHost struct{}

func (noHost) Labels() map[string]string                        { return nil }
func (noHost) Recover(context.Context, func(string) bool) error { return nil }
func (noHost) Create(context.Context, bourse.VolumeID, bourse.VolumeOrder) error {
	return errNoVolumes
}

func (noHost) ExtendsLive() bool                                       { return false }
func (noHost) Mount(context.Context, bourse.VolumeID) (string, error)  { return "", errNoVolumes }
func (noHost) Unmount(context.Context, bourse.VolumeID) error          { return errNoVolumes }
func (noHost) Extend(context.Context, bourse.VolumeID, int64) error    { return errNoVolumes }
func (noHost) Destroy(context.Context, bourse.VolumeID) error          { return errNoVolumes }
func (noHost) RemoveSnapshot(context.Context, bourse.SnapshotID) error { return errNoVolumes }
func (noHost) Chunk(context.Context, string, int, io.Writer) error     { return errNoVolumes }
func (noHost) Release(context.Context, string) error                   { return errNoVolumes }
func (noHost) Local(string) volume.Source                              { return nil }
func (noHost) Usage(context.Context, bourse.VolumeID) (u bourse.VolumeUsage, err error) {
	return u, errNoVolumes
}

func (noHost) Snapshot(context.Context, bourse.VolumeID, bourse.SnapshotID) (i volume.Info, err error) {
	return i, errNoVolumes
}

func (noHost) Manifest(context.Context, string) (m volume.Manifest, err error) {
	return m, errNoVolumes
}

func (noHost) Fill(context.Context, bourse.VolumeID, bourse.VolumeOrder, volume.Source) error {
	return errNoVolumes
}
