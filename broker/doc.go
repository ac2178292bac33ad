// Package broker is the public API server. It decodes, validates, authorizes and forwards requests.
// The exchange decides which worker fills an order, and only the worker that owns a machine decides
// about that machine. The broker merely calls them.
//
// A broker stores nothing that matters (invariant 9). It caches only three things (package lookup):
// the apps that it has seen in the last second; the app of each machine and volume ID, which never
// changes; and the workers' replies of the last few seconds, so that callers see their own changes
// in lists. The IDs of machines and volumes contain their worker's tag, so any broker can route a
// request about them.
//
// Each kind of object has a handler with its routes, such as machineHandler and volumeHandler;
// compose combines the handlers. Requests about a single machine go to its worker.
//
// Handlers start goroutines only to call several workers in parallel, and wait for these
// goroutines. Commands and tunnels, which stream in both directions, are forwarded without
// decoding. The package has no background work of its own.
//
// Package broker/endpoint defines the routes, writes the errors, and determines which requests a token permits.
package broker
