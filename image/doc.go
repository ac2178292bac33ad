// Package image keeps a worker's OCI images: pulled once from their registries,
// shared by all machines, counted against disk, evicted when there is no room.
//
// A [Store] stands on containerd. What is true is what containerd has on its
// disk: an image is there when its record "registry/repository@sha256:…" is in
// the namespace, and its layers are unpacked. Labels of that record hold the
// tags it was asked for by and when it was last used, so nothing else has to
// survive a restart, and what others remove from containerd is noticed.
// Everything a quote asks for ([Store.Has], [Store.Missing]) is a copy in
// memory.
//
// # Pulls
//
// One pull serves all who ask for the same image. Before it does anything it
// takes a lease in containerd, named after the image: the lease is the durable
// intent, holds everything that the pull fetches against garbage collection,
// and is what a restarted daemon finds and resumes. Layers go on at the byte
// where they stopped. A pull that ends for good, with the image or because the
// image is wrong, removes its lease, and with it whatever nobody else needs. One
// that failed for want of a registry, or that its daemon left, keeps it for a
// retry: [Store.Run] removes it after Config.Keep, containerd by itself after
// a day.
//
// A waiter that leaves stops nothing; after the last one has left a pull goes
// on for Config.Linger, so that a retry finds it further on or done.
//
// # Budget
//
// Images, and the pulls under way, take at most Config.Budget bytes: each
// compressed blob and each unpacked layer once, however many images share it.
// What cannot fit is refused before its layers are downloaded; what grows past
// the budget while it is unpacked is aborted and removed. The growth is looked
// at a few times a second, so that a layer which unpacks to far more than its
// size may go over for that long.
//
// # Trust
//
// Registries and images are not trusted. Manifests are bounded and checked
// before anything of them is used, sizes and digests are verified, nothing is
// fetched from the addresses that a manifest may name, and no connection may
// stand still for longer than Config.Stall. Layers are unpacked by containerd,
// inside the snapshot's root.
//
// # Whose image
//
// Credentials are an organisation's, or all share them. [Store.Resolve] finds that
// a registry shows an image to an organisation, and remembers it; an image that is
// here is no one's to whom it was not shown. A pull reads the manifest from the
// registry that its name names, with the asker's credentials, even when containerd
// has it: knowing a digest is no proof. Layers are shared by their digests.
//
// # Concurrency
//
// Store.mu guards the memory and is never held over I/O or a callback. Each
// pull has a goroutine, which the store waits for in Close. Room is made by one
// goroutine at a time (Store.room).
package image
