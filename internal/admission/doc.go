// Package admission controls access to servers. It determines which addresses a server
// may listen on without credentials, and implements servers' certificates and clients'
// tokens.
//
// Servers of a cluster authenticate each other with certificates of the cluster's CA. A
// certificate contains a server's name and role (see [Identity]). Clients authenticate
// with bearer tokens, each of which is valid for everything, for metrics, for one
// organization, or for one of its apps. Neither certificates nor tokens are required on
// loopback.
//
// The package does not open sockets.
package admission
