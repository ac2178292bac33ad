// Package broker is the public API server: it decodes, validates, authorises
// and forwards. The exchange decides where an order goes, the worker that owns
// a machine decides everything about it; a broker only knows how to ask them.
//
// A broker keeps nothing that matters (invariant 9). What it remembers are
// shortcuts: apps seen in the last second (package apps), the app of a machine's or
// volume's id, which never changes, and what owners replied in the last seconds
// (package lookup), so that a caller that changed one through this broker finds it
// so in a list. These ids are addresses, so any broker routes them.
//
// Each noun has a handler with its routes: machineHandler, volumeHandler and so on;
// compose puts them together. Everything about one machine is asked of its owner.
//
// Handlers start goroutines only to ask several workers side by side, and wait
// for them. What streams both ways, a command or a tunnel, passes unread. There is nothing to run beside the HTTP server.
//
// Errors leave by one function, writeError; which request may do what is decided in
// one place, auth.go.
package broker
