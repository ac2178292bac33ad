// Package loopback manages credentials for servers that listen on loopback and whose operator has
// not configured any credentials. Every user on a host can connect to loopback, so these servers
// also need credentials.
//
// The credentials are random strings in files with mode 0600 in one of the user's directories (see
// [Dir]). Each API has a token that its clients present, in a file named after the API's address.
// Each cluster has a secret that its servers share, in a file named after the cluster. Only the
// user and root can read these files.
package loopback
