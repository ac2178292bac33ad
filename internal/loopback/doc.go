// Package loopback manages credentials for servers that listen on loopback and have not
// been given any credentials by their operator. Every user of a host can connect to
// loopback, so these servers need credentials, too.
//
// The credentials are random texts in files with mode 0600 in a directory of the user (see [Open]). Each API has a
// token that its clients present, in a file named after the API's address. Each cluster has a secret that its servers
// share, in a file named after the cluster. Only the user and root can read these files.
package loopback
