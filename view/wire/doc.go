// Package wire defines the data that sites publish: rows, the order of a row's versions, and the transactions and
// snapshots that transport them, encoded and signed. It does not access files or the network.
//
// Merging is a function of two versions (merge.go) whose result does not depend on their order. Each site signs its
// transactions, and the broker that writes a shared row signs the row, so any member may forward them (sign.go,
// proof.go).
//
// A column with its default value counts as absent: it is NULL on the wire and is left out of
// hashes. Therefore a version of the program that does not know a column agrees with a version that
// does.
package wire
