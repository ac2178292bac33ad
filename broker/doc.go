// Package broker is the public API server: it decodes, validates, authorises
// and forwards. The exchange decides where an order goes, the worker that owns
// a machine decides everything about it; a broker only knows how to ask them.
//
// A broker keeps nothing that matters (invariant 9). What it remembers are
// shortcuts: apps seen in the last second, the app of a machine's or volume's
// id, which never changes, and what owners told of them in the last seconds, so
// that who changed one through this broker finds it so in a list. These ids are
// addresses, so any broker routes them.
//
// Lists, and apps, come from the view that each server holds, a hint
// (invariant 8): gather.go and appstore.go say when the workers are asked
// beside it. Everything about one machine is asked of its owner.
//
// Handlers start goroutines only to ask several workers side by side, and wait
// for them. What streams both ways, a command or a tunnel, passes unread. There is nothing to run beside the HTTP server.
//
// Errors leave by one door, errors.go; which request may do what is decided at
// one place, auth.go; which path leads where stands in one table, routes.go.
package broker
