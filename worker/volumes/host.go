package volumes

import (
	"context"
	"io"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
)

// Host creates and copies volumes on the host. It does not access the worker's records. All methods
// can be retried, even if a crash interrupted an earlier call. An unavailable error is temporary.
// The errors not_found, invalid, failed_precondition (the volume is damaged) and
// insufficient_capacity (the host's disk is full) are final.
type Host interface {
	Files
	Copies
	// Labels returns the host's labels for volumes: "volume", and "volume.encrypted" if
	// volumes can be encrypted.
	Labels() map[string]string
	// ExtendsLive reports whether a volume's file system can grow while it is in use. If not, it
	// grows the next time it is mounted.
	ExtendsLive(id bourse.VolumeID) bool
	// Recover removes all objects for which keep returns false. keep receives the ids of
	// volumes, of snapshots, and of machines with scratch space. Recover must be called
	// once, before all other methods.
	Recover(ctx context.Context, keep func(id string) bool) error
}

// Files manages size-limited file systems.
type Files interface {
	Create(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder) error
	// Mount mounts a volume and returns its directory.
	Mount(ctx context.Context, id bourse.VolumeID) (path string, err error)
	// Unmount undoes Mount and Attach.
	Unmount(ctx context.Context, id bourse.VolumeID) error
	// Attach prepares a volume for a virtual machine and returns its block device. From then on,
	// Mount returns failed_precondition.
	Attach(ctx context.Context, id bourse.VolumeID) (device string, err error)
	// Extend enlarges a volume, even while it is in use.
	Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) error
	// Destroy removes a volume, even if it is incomplete. Its snapshots remain.
	Destroy(ctx context.Context, id bourse.VolumeID) error
	Usage(ctx context.Context, id bourse.VolumeID) (bourse.VolumeUsage, error)
}

// Copies manages snapshots, and copies volumes and snapshots to and from other workers. An id of
// type string identifies a volume or a snapshot.
type Copies interface {
	// Copyable returns failed_precondition if a volume cannot be copied while its machine uses it. Even if it returns
	// nil, a copy may still fail with that error.
	Copyable(id bourse.VolumeID) error
	Snapshot(ctx context.Context, id bourse.VolumeID, snap bourse.SnapshotID) (volume.Info, error)
	RemoveSnapshot(ctx context.Context, snap bourse.SnapshotID) error
	// Export writes a volume's or snapshot's content as a stream. The content is consistent: all of
	// it is from the same moment.
	Export(ctx context.Context, id string, from volume.Position, to io.Writer) error
	// Fill creates a volume with the content of src. It resumes where an earlier call was
	// interrupted.
	Fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, src volume.Source) error
	// Copy is like Fill, but its source is a volume or snapshot on this host.
	Copy(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, from string) error
}

// Peers reads volumes and snapshots of other workers.
type Peers interface {
	// Export opens a stream of a volume or snapshot on the worker with the given tag. grant is that worker's permission
	// to read it. After the errors unavailable, timeout and canceled, the caller may retry; all other errors are final.
	Export(ctx context.Context, tag bourse.WorkerTag, id, grant string, from volume.Position) (io.ReadCloser, error)
}

var errNoVolumes = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without volumes")

// noHost is the Host of a worker that was started without volumes. Operations on recorded volumes
// wait until the worker is started with volume support again.
type noHost struct{}

func (noHost) Labels() map[string]string                        { return nil }
func (noHost) Recover(context.Context, func(string) bool) error { return nil }
func (noHost) Create(context.Context, bourse.VolumeID, bourse.VolumeOrder) error {
	return errNoVolumes
}

func (noHost) ExtendsLive(bourse.VolumeID) bool                        { return false }
func (noHost) Attach(context.Context, bourse.VolumeID) (string, error) { return "", errNoVolumes }
func (noHost) Mount(context.Context, bourse.VolumeID) (string, error)  { return "", errNoVolumes }
func (noHost) Unmount(context.Context, bourse.VolumeID) error          { return errNoVolumes }
func (noHost) Extend(context.Context, bourse.VolumeID, int64) error    { return errNoVolumes }
func (noHost) Destroy(context.Context, bourse.VolumeID) error          { return errNoVolumes }
func (noHost) RemoveSnapshot(context.Context, bourse.SnapshotID) error { return errNoVolumes }
func (noHost) Usage(context.Context, bourse.VolumeID) (u bourse.VolumeUsage, err error) {
	return u, errNoVolumes
}

func (noHost) Copyable(bourse.VolumeID) error { return nil }

func (noHost) Snapshot(context.Context, bourse.VolumeID, bourse.SnapshotID) (i volume.Info, err error) {
	return i, errNoVolumes
}

func (noHost) Export(context.Context, string, volume.Position, io.Writer) error {
	return errNoVolumes
}

func (noHost) Fill(context.Context, bourse.VolumeID, bourse.VolumeOrder, volume.Source) error {
	return errNoVolumes
}

func (noHost) Copy(context.Context, bourse.VolumeID, bourse.VolumeOrder, string) error {
	return errNoVolumes
}
