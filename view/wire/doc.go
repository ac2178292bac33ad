// Package wire is what sites write: rows and which of two versions of a row
// counts, and the transactions and snapshots in which they travel, encoded and
// signed. It knows no file and no network.
//
// Merging is a function of two versions (merge.go) that does not depend on the
// order. What a site writes is signed by it, and a shared row by the broker that
// wrote it, so that it does not matter which member passes it on (sign.go,
// proof.go).
//
// A column that has its default counts as absent: on the wire it is NULL, in
// hashes it is left out. So a release that does not know a column agrees with
// one that does.
package wire
