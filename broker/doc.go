// Package broker is the public API server: it decodes, validates, authorises
// and forwards. The exchange decides where an order goes, the worker that owns
// a machine decides everything about it; a broker only knows how to ask them.
//
// A broker keeps nothing that matters (invariant 9). What it remembers are
// shortcuts: apps seen in the last seconds and the app of a machine id, which
// never changes. A machine's id is an address, so any broker routes it.
//
// Handlers start goroutines only to ask several workers side by side, and wait
// for them. There is nothing to run beside the HTTP server.
//
// Errors leave by one door, errors.go; which request may do what is decided at
// one place, auth.go; which path leads where stands in one table, routes.go.
package broker
