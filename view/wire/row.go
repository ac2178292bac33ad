package wire

import "github.com/bourse-dev/bourse"

// Stream identifies a sequence of transactions: those that a site writes in one epoch. A site that has lost
// its view begins a new epoch, which is greater than all earlier ones.
type Stream struct {
	Site  bourse.WorkerID `json:"site"` // the server's ID, regardless of its role
	Epoch uint64          `json:"epoch"`
}

// Position is the position in a stream directly after the transaction Seq. The zero Position means
// that there is no such transaction.
type Position struct {
	Stream
	Seq uint64 `json:"seq"` // counted from 1
}

// Clock is a hybrid logical clock: milliseconds since 1970 in the upper 48 bits, a counter in the lower 16. It orders
// the versions of a shared row.
//
// Source: Kulkarni et al., Logical Physical Clocks (2014), with the physical part in whole milliseconds.
type Clock uint64

// Value is the value of a column: nil, int64, float64, string or []byte.
type Value any

// Row describes one row in a transaction.
type Row struct {
	Table   string
	Key     string           // the row's key, 1 to MaxKey bytes
	Columns map[string]Value // the changed columns of an owned row, or all columns of a shared row
	Deleted bool             // whether the row is deleted; in this case, Columns is empty
	Clock   Clock            // 0 for owned rows
}

// Transaction is an element of a stream. Its rows become visible at the same time.
type Transaction struct {
	Position
	At   int64 // time when the site wrote it, by its own clock, in nanoseconds since 1970
	Rows []Row
}

// Limits on accepted data. Rows that exceed a limit are quarantined.
const (
	MaxKey     = 512     // bytes of one key
	MaxValue   = 1 << 20 // bytes of one value
	MaxRow     = 2 << 20 // bytes of one encoded row
	MaxRows    = 1024    // rows in one transaction; Publish splits larger ones
	MaxTx      = 8 << 20 // bytes of one encoded transaction
	MaxColumns = 64      // columns in one row
	MaxName    = 64      // bytes of a table's, column's or site's name
)

// Names of the replicated tables, without the suffix "_rows".
const (
	TableWorkers   = "worker"
	TableMachines  = "machine"
	TableVolumes   = "volume"
	TableImages    = "image"
	TableApps      = "app"
	TableSecrets   = "secret"
	TableReleases  = "release"
	TableCanceled  = "canceled"
	TableRemoved   = "removed"
	TableTokens    = "token"
	TableCertified = "certified"
	TableWireGuard = "wireguard"
	TablePolicies  = "policy"
)

// DeletedRow returns a Row that deletes the row with this key. It must not be used for apps, tokens and
// laptops, which are deleted by setting a column.
func DeletedRow(table, key string) Row { return Row{Table: table, Key: key, Deleted: true} }
