// Package broker is the public API server. It decodes, validates, authorizes and forwards requests. The exchange
// decides where an order goes, and the worker that owns a machine decides everything about it; the broker only asks
// them.
//
// A broker stores nothing that matters (invariant 9). It caches only three things (package lookup):
// the apps that it has seen in the last second; the app of each machine and volume ID, which never
// changes; and the workers' replies of the last few seconds, so that callers see their own changes
// in lists. The IDs of machines and volumes contain their worker's tag, so any broker can route a
// request about them.
//
// Each noun has a handler with its routes, such as machineHandler and volumeHandler; compose
// combines them. Requests about a single machine go to its worker.
//
// Handlers start goroutines only to call several workers in parallel, and wait for them. Commands
// and tunnels, which stream in both directions, are forwarded without decoding. The package has no
// background work of its own.
//
// Package broker/endpoint defines the routes, writes the errors, and determines which requests a token permits.
package broker
