// Package tenant implements the public API's routes for addresses, laptops in private networks, placements, proxies'
// status, releases, secrets, tokens, and the list of an organization's machines. The routes for apps, machines, volumes
// and orders are in package broker. This package also responds to the Machines API routes that Bourse does not support, with the
// reason for each (Unsupported).
//
// There is one handler for each kind of object. Handlers store nothing; all data is in the view.
package tenant
