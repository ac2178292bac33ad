// Package tenant implements the public API's routes for the objects of organizations and apps, except machines, volumes
// and orders: addresses, placements, proxies' status, releases, secrets, tokens, and the list of an organization's
// machines. It also responds to the Machines API routes that Bourse does not support, with the reason for each
// (Unsupported).
//
// There is one handler for each kind of object. Handlers store nothing; all data is in the view.
package tenant
