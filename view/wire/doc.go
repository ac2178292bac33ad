// Package wire defines the data that sites publish: rows, the order of a row's versions, and the encoded and
// signed transactions and snapshots that contain them.
//
// Merging two versions (merge.go) yields the same result in either order. Each site signs its
// transactions, and the broker that writes a shared row signs the row, so any member may forward
// transactions and rows (sign.go, proof.go).
//
// A column with its default value counts as absent: it is NULL on the wire, and hashes do not
// include it. Releases that support different sets of columns therefore compute the same hashes, as
// long as the additional columns have their default values.
package wire
