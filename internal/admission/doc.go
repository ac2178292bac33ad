// Package admission is who may speak to whom: which addresses a server may
// listen on without credentials, the certificates by which servers know one
// another, and the tokens of clients.
//
// Servers of a cluster prove who they are with certificates of the cluster's
// own CA, both ways; a certificate names a server and its role (see
// [Identity]). Clients bring bearer tokens, each good for everything,
// for an organisation or for one app of it. On loopback neither is asked for.
//
// The package decides and builds; it opens no socket.
package admission
