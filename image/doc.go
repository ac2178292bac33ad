// Package image manages a worker's OCI images. They are pulled once from their registries, shared by all machines,
// counted against a disk budget, and evicted when there is no space.
//
// A [Store] uses containerd, whose contents are authoritative: an image is present if its record
// "registry/repository@sha256:…" is in the namespace and its layers are unpacked. Labels of that
// record contain the tags by which it was requested and the time of its last use, so nothing else
// has to survive a restart. The store notices when other programs remove images from containerd.
// The data for quotes ([Store.Has], [Store.Missing]) is a copy in memory.
//
// # Pulls
//
// One pull serves all callers that want the same image. It first takes a lease in containerd, named
// after the image. The lease durably records the intent, protects all fetched data from garbage
// collection, and lets a restarted daemon find and resume the pull. Layers resume at the byte where
// they stopped. A pull that ends for good, with the image or because the image is invalid, removes
// its lease, and with it all data that nothing else needs. A pull that failed because a registry
// was unreachable, or that was stopped with its daemon, keeps its lease for a retry. [Store.Run]
// removes the lease after Config.Keep, and containerd automatically after a day.
//
// A waiter that leaves does not stop the pull. After the last waiter has left, the pull continues for Config.Linger,
// so that a retry finds it further along or done.
//
// # Budget
//
// Images and pulls in progress may take up to Config.Budget bytes. Each compressed blob and each unpacked layer
// counts once, however many images share it. An image that cannot fit is refused before its layers are downloaded.
// One that exceeds the budget while it is unpacked is aborted and removed. The size is checked a few times per
// second, so a layer that unpacks to far more than its compressed size may briefly exceed the budget.
//
// # Trust
//
// Registries and images are not trusted. Manifests are limited in size and checked before they are used, sizes and
// digests are verified, nothing is fetched from addresses in a manifest, and a connection that is idle for longer
// than Config.Stall is aborted. containerd unpacks layers inside the snapshot's root.
//
// # Access to images
//
// Credentials belong to an organization or are shared by all. [Store.Resolve] verifies that a
// registry shows an image to an organization, and records this. An image on this worker is hidden
// from organizations to which it was not shown. A pull reads the manifest from the registry with
// the asker's credentials even if containerd has it, because knowing a digest does not prove
// access. Layers are shared by digest.
//
// # Concurrency
//
// Store.mu guards the in-memory state and is never held during I/O or a callback. Each pull has a goroutine, for
// which Close waits. One goroutine at a time frees space (Store.room).
package image
