// Package admission controls access to servers. It checks on which addresses a server may
// listen without credentials, and implements the certificates of servers and the tokens of
// clients.
//
// Servers of a cluster authenticate each other with certificates of the cluster's CA. A
// certificate contains a server's name and role (see [Identity]). Clients authenticate with
// bearer tokens, each of which is valid for everything, for one organization, or for one of
// its apps. Neither is required on loopback.
//
// The package opens no sockets.
package admission
