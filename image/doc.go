// Package image keeps a worker's OCI images: pulled once from their registries,
// shared by all machines, counted against disk, evicted when there is no room.
//
// A [Store] uses containerd. The truth is what containerd has on its
// disk: an image is there when its record "registry/repository@sha256:…" is in
// the namespace, and its layers are unpacked. Labels of that record hold the
// tags it was requested by and when it was last used, so nothing else has to
// survive a restart, and what others remove from containerd is noticed.
// Everything a quote needs ([Store.Has], [Store.Missing]) is a copy in
// memory.
//
// # Pulls
//
// One pull serves all callers that want the same image. Before it does anything it
// takes a lease in containerd, named after the image: the lease is the durable
// intent, holds everything that the pull fetches against garbage collection,
// and is what a restarted daemon finds and resumes. Layers resume at the byte
// where they stopped. A pull that ends for good, with the image or because the
// image is wrong, removes its lease, and with it what nothing else needs. One
// that failed because a registry was unreachable, or was stopped with its daemon, keeps it for a
// retry: [Store.Run] removes it after Config.Keep, containerd by itself after
// a day.
//
// A waiter that leaves stops nothing; after the last one has left a pull goes
// on for Config.Linger, so that a retry finds it further along or done.
//
// # Budget
//
// Images, and the pulls in progress, take at most Config.Budget bytes: each
// compressed blob and each unpacked layer once, however many images share it.
// What cannot fit is refused before its layers are downloaded; what grows past
// the budget while it is unpacked is aborted and removed. The growth is checked
// a few times a second, so that a layer which unpacks to far more than its
// size may exceed the budget for that long.
//
// # Trust
//
// Registries and images are not trusted. Manifests are bounded and checked
// before anything of them is used, sizes and digests are verified, nothing is
// fetched from the addresses that a manifest may name, and no connection may
// be idle for longer than Config.Stall. Layers are unpacked by containerd,
// inside the snapshot's root.
//
// # Whose image
//
// Credentials belong to an organisation, or are shared by all. [Store.Resolve] finds that
// a registry shows an image to an organisation, and records it; an image that is
// here is hidden from an organisation that it was not shown to. A pull reads the manifest from the
// registry in its name, with the asker's credentials, even when containerd
// has it: knowing a digest proves nothing. Layers are shared by their digests.
//
// # Concurrency
//
// Store.mu guards the memory and is never held over I/O or a callback. Each
// pull has a goroutine, which the store waits for in Close. Space is freed by one
// goroutine at a time (Store.room).
package image
