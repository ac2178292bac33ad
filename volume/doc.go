// Package volume keeps size-limited file systems on one host: volumes, their
// snapshots, and the scratch space of containers. It knows nothing of a
// worker's records: the worker decides, this package acts, and every operation
// may be repeated until it succeeds.
//
// # On disk
//
// Each thing is a directory below Config.Dir, named by its id, and the
// directory's presence under that name says that the thing is complete:
//
//	<id>/image           the file system (of a volume, a snapshot or scratch space)
//	<id>/mnt/            where it is mounted, unless it is a snapshot's
//	<id>/content.json    of a snapshot: what the image holds
//	<id>/key             of encrypted ones: the volume whose key opens the image
//	<id>.new/            being made; worthless after a crash
//	<id>.fill/           being filled; image and progress, resumed after a crash
//	<id>.ready/          filled and verified; what is left is to make it the volume's own
//	<id>.gone/           being removed
//	<id>.fork<n>/        a copy of a mounted volume while another host reads it
//
// A thing changes its state by renaming its directory, after all in it is
// synced; there is no other marker. A volume's size is that of its image. A
// file system smaller than its image (a crash while it grew) grows when it is
// mounted the next time.
//
// # Why a loop file system
//
// A limit on a directory's size can be had from project quotas or from a file
// system of its own. Quotas need a data directory on xfs or ext4 that was made
// and mounted for them, give the machines one shared journal, and a snapshot
// then is a walk over files that are being written. A file system in a file
// works on whatever the data directory is on, freezes, is copied and sent as
// one file, can be encrypted as a whole and has the same bytes on every
// worker. It costs a second layer of allocation; direct IO spares the second
// page cache. Having both would double what must be crash-safe, so there is
// one.
//
// Images are sparse: the worker's ledger holds the space, so that a volume is
// made in milliseconds, and copies and forks take what is used. A host whose
// disk is filled by others gives its volumes write errors; the ledger's
// capacity of disk has to leave room for the rest of the host.
//
// # Loop devices
//
// A device is bound with autoclear while we hold it open, then the mount
// holds it: a crash between the two leaves nothing. An image that is still bound
// (a mount that was detached while in use, or one in another mount namespace)
// is mounted again through the same device, since two devices on one image
// would be two file systems writing over each other.
//
// # Concurrency
//
// One operation at a time has a thing, by its id. An operation that needs two locks
// takes that of what is being made first and that of its source second. A
// volume is locked while it is frozen, not while it is copied: it can be
// mounted and unmounted meanwhile. One process has a directory.
package volume
