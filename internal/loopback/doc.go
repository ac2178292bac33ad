// Package loopback is the credentials of servers that listen on loopback
// without any of their operator's: every user of a host reaches its loopback,
// so that an address there proves nothing.
//
// They are random texts in files of mode 0600 in a directory of the user's (see
// [Open]): a token of each API, found by its address, which clients show; and a
// secret of each cluster, found by its name, which servers show one another.
// Anyone who can read them is that user, or root.
package loopback
