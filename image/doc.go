// Package image manages a worker's OCI images. It pulls each image from its registry once, shares it among all
// machines, and evicts images when they exceed a disk budget.
//
// A [Store] stores images in containerd, which is the source of truth: an image is present if its record
// "registry/repository@sha256:…" is in the namespace and its layers are unpacked. The record's labels contain the tags
// by which the image was requested, the tenants that have access to it, and the time of its last use, so no other data
// has to survive a restart. The store notices when other programs remove images from containerd. [Store.Has] and
// [Store.Missing], which are called for every quote, use an in-memory copy.
//
// # Pulls
//
// One pull serves all callers that request the same image. It first takes a lease in containerd, under an id derived
// from the image's name. The lease durably records the intent, protects all fetched data from garbage collection, and
// lets a restarted daemon find and resume the pull. Layer downloads resume at the byte where they stopped. When a pull
// succeeds, or fails because the image is invalid, its lease and all data that is no longer needed are removed. When a
// registry becomes unreachable after some data was fetched, or the daemon stops, the pull's lease is kept for a retry.
// [Store.Run] removes a failed pull's lease after Config.Keep. If no daemon runs by then, containerd removes the lease
// a day after its creation.
//
// If a caller stops waiting, the pull continues for the other callers. Once no caller is waiting, it continues for
// Config.Linger, so that a caller that retries finds it further along or already complete.
//
// # Budget
//
// Images and pulls in progress may take up to Config.Budget bytes. Each compressed blob and each unpacked layer counts
// once, no matter how many images share it. If an image cannot fit, its pull fails before layers are downloaded. If an
// image exceeds the budget while it is being unpacked, the pull is aborted and its data is removed. Because the size is
// checked only a few times per second, a layer that unpacks to far more than its compressed size may briefly exceed the
// budget.
//
// # Trust
//
// Registries and images are not trusted. Manifests are limited in size and checked before they are used, sizes and
// digests are verified, nothing is fetched from addresses in a manifest, and a request that receives no data for
// Config.Stall is aborted. containerd unpacks layers inside the snapshot's root.
//
// # Access to images
//
// Credentials are either an organization's own or shared by all organizations. [Store.Resolve] asks the registry
// whether an organization may access an image, and records the registry's confirmation. Without a confirmation, an
// organization cannot use the image, even if the image is on this worker. Because knowing a digest does not prove
// access, a pull reads the manifest from the registry with the organization's credentials even if containerd already
// has it. Layers are shared by digest.
//
// # Concurrency
//
// Store.mu guards the in-memory state and is never held during I/O or callbacks. Each pull has a goroutine, for which
// Close waits. One goroutine at a time frees space (Store.evicting).
package image
