// Package broker is the public API server. It decodes, validates, authorizes and forwards requests. The exchange
// decides where an order goes, and the worker that owns a machine decides everything about it; the broker only asks
// them.
//
// A broker stores nothing that matters (invariant 9). It only caches the apps that it has seen in the last second,
// the app of each machine and volume ID, which never changes, and the owners' replies of the last seconds, so that
// callers see their own changes in lists (package lookup). The IDs contain the tags of their workers, so any broker
// can route them.
//
// Each noun has a handler with its routes, such as machineHandler and volumeHandler; compose combines them. Requests
// about a single machine go to its owner.
//
// Handlers start goroutines only to call several workers in parallel, and wait for them. Commands and tunnels, which
// stream in both directions, are forwarded without decoding. Nothing runs besides the HTTP server.
//
// Package broker/endpoint defines the routes, writes the errors, and determines which requests a token permits.
package broker
