// Package volume manages size-limited file systems on one host: volumes, their snapshots, and the scratch space of
// containers. It does not know the worker's records: the worker decides, this package acts, and every operation may
// be repeated until it succeeds.
//
// # On disk
//
// Each object is a directory below Config.Dir, named by its id. A directory with exactly that name is complete.
//
//	<id>/image           the file system (of a volume, a snapshot or scratch space)
//	<id>/mnt/            the mount point, except for snapshots
//	<id>/content.json    a snapshot's description
//	<id>/key             for encrypted images: the volume whose key opens the image
//	<id>.new/            being created; removed after a crash
//	<id>.fill/           being filled; image and progress, resumed after a crash
//	<id>.ready/          filled and verified; still has the identity of its source
//	<id>.gone/           being removed
//	<id>.fork<n>/        a copy of a mounted volume while another host reads it
//
// An object changes its state when its directory is renamed, after everything in it has been synced; there is no
// other marker. A volume's size is that of its image. A file system that is smaller than its image (after a crash
// while it grew) grows when it is mounted the next time.
//
// # Why a loop file system
//
// The size of a directory can be limited by project quotas or by a separate file system. Quotas
// need a data directory on xfs or ext4 that was created and mounted for them. All machines would
// share one journal, and a snapshot would have to walk files that are being written. A file system
// in a file works on any file system below the data directory, can be frozen, copied and sent as
// one file, can be encrypted as a whole and has the same bytes on every worker. It costs a second
// layer of allocation; direct I/O avoids a second page cache. Supporting both would double the code
// that must be crash-safe.
//
// Images are sparse: the worker's ledger reserves the space, so that creating a volume takes milliseconds, and copies
// and forks take only the space used. If other programs fill the host's disk, its volumes get write errors, so the
// ledger's disk capacity has to leave room for the rest of the host.
//
// # Loop devices
//
// A device is bound with autoclear. The process holds it open until the mount holds it, so a crash
// in between leaves nothing behind. An image that is still bound (by a mount that was detached
// while in use, or one in another mount namespace) is mounted again through the same device,
// because two devices on one image would be two file systems overwriting each other.
//
// # Concurrency
//
// Operations on one object are serialized by its id. An operation that needs two locks first takes that of the object
// being created, then that of its source. A volume is locked while it is frozen, but not while it is copied, so it
// can be mounted and unmounted in the meantime. Only one process may use a directory.
package volume
