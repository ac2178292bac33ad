// Package loopback manages the credentials of servers that listen on loopback and have
// none from their operator. Every user of a host can connect to loopback, so these servers
// need credentials, too.
//
// The credentials are random texts in files with mode 0600 in a directory of the user (see
// [Open]). Each API has a token, found by the API's address, that clients present. Each
// cluster has a secret, found by the cluster's name, that its servers share. Only the user
// and root can read them.
package loopback
