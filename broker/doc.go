// Package broker is the public API server. It decodes, validates, authorizes and forwards requests. The exchange
// decides which worker fills an order, and only a machine's own worker makes decisions about the machine. The broker
// only calls the exchange and the workers.
//
// A broker stores nothing that matters (invariant 9). It caches only three things (package lookup): the apps that it
// has seen in the last second; the app of each machine and volume ID, which never changes; and workers' replies from
// the last few seconds, so that callers see their own changes in lists. Machine and volume IDs contain the tag of their
// worker, so any broker can route a request about them.
//
// Each kind of object has a handler with its routes, such as machineHandler and volumeHandler;
// compose combines the handlers. Requests about a single machine go to its worker.
//
// Handlers start goroutines only to call several workers in parallel, and wait for them to finish. Commands and
// tunnels, which stream in both directions, are forwarded without being decoded. The package runs nothing in the
// background.
//
// Package broker/endpoint defines the routes, writes the errors, and determines which requests a token permits.
package broker
