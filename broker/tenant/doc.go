// Package tenant implements the routes of the public API for what belongs to an
// organization or an app, other than machines, volumes and orders: addresses,
// placements, proxies' status, releases, secrets, tokens, and the list of an
// organization's machines. Routes of the Machines API that Bourse doesn't support are
// answered here, too, each with its reason (Unsupported).
//
// There is one handler for each noun. Handlers keep no state of their own; what they
// read and write is in the view.
package tenant
