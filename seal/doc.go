// Package seal closes the values of secrets so that only workers open them. A
// broker has the public half of a cluster's keys: it seals, and what it has
// sealed it cannot read. What is sealed names the app and the secret that it is
// of, and opens nowhere else.
//
// The keys are lines of a file: of the first one a broker seals, all of them
// open. So a key is replaced by putting another line before it.
package seal
