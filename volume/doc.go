// Package volume manages size-limited file systems on one host: volumes, their snapshots, and the
// scratch space of containers. It has no access to the worker's records: the worker decides which
// operations to run, and may repeat every operation until it succeeds.
//
// # On disk
//
// Each object is a directory below Config.Dir whose name is the object's id, followed by a suffix
// while the object is incomplete or a temporary copy.
//
//	<id>/image           the file system (of a volume, a snapshot or scratch space)
//	<id>/mnt/            the mount point, except for snapshots
//	<id>/content.json    a snapshot's description
//	<id>/key             the id of the volume whose key opens an encrypted image
//	<id>/vm              present if a virtual machine may have written to the image, or to the image that it was copied from
//	<id>.new/            being created; removed after a crash
//	<id>.fill/           being filled; image and progress, resumed after a crash
//	<id>.ready/          filled and verified; still has its source's identity
//	<id>.gone/           being removed
//	<id>.fork<n>/        a copy of a mounted volume while another host reads it
//
// Only the directory's name records an object's state. The directory is renamed after all its contents have been
// synced. A volume's size is the size of its image. If a crash interrupts the growth of a file system, the file system
// is smaller than its image. It then grows the next time it is mounted.
//
// # Why a loop file system
//
// The size of a directory can be limited by project quotas or by a separate file system. Quotas require a data
// directory on an xfs or ext4 file system that was created and mounted with quotas. All machines would then share one
// journal, and a snapshot would have to copy files that are being written. A file system in a file works no matter
// which file system contains the data directory. It can be frozen, copied and sent as one file, and encrypted as a
// whole, and it has the same bytes on every worker. The price is a second layer of block allocation, but not a second
// page cache, thanks to direct I/O. Supporting both methods would double the code that must be crash-safe.
//
// Images are sparse, because the worker's ledger reserves the space. Creating a volume therefore
// takes milliseconds, and copies of a volume occupy only as much space as its data. If other
// programs fill the host's disk, writes to its volumes fail. The ledger's disk capacity must
// therefore leave space for all other uses of the disk.
//
// # Loop devices
//
// A device is bound with autoclear. This process keeps the device open until it is mounted, so a crash before the mount
// leaves nothing behind. An image may still be bound to a device because its mount was detached while in use, or
// because the mount still exists in another mount namespace. The image is then mounted again through the same device. A
// second device would result in two independent file systems that overwrite each other's data.
//
// # Virtual machines
//
// A virtual machine gets a volume as a block device, and its guest mounts it. The guest can write any bytes to the
// device. Kernels and programs that read file systems were not written to withstand hostile bytes. Therefore, the host
// neither mounts nor repairs a file system that a guest has written to, nor any copy of it. Before the guest gets the
// device, Attach records in the volume's directory that a virtual machine uses the volume. Each copy gets the same
// record. The guest replays the journal and grows the file system.
//
// The loop device for a guest is bound without autoclear until Unmount. Otherwise, the kernel could
// bind the same device to another volume while the guest's container can still use the device.
//
// # Concurrency
//
// Operations on one object are serialized by a lock for its id. An operation that needs two locks first takes the lock
// of the object being created, then the lock of its source. A volume is locked while it is frozen, but not while it is
// copied, so it can be mounted and unmounted in the meantime. Only one process may use a directory.
package volume
