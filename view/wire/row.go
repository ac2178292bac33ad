package wire

import "github.com/bourse-dev/bourse"

// Stream names the log of one life of a site. A site that has lost its view
// starts a new epoch, which is greater than all before it.
type Stream struct {
	Site  bourse.WorkerID `json:"site"` // a server's id, whatever its role
	Epoch uint64          `json:"epoch"`
}

// Position is a place in a stream: after its transaction Seq. The zero
// position is nowhere.
type Position struct {
	Stream
	Seq uint64 `json:"seq"` // from 1
}

// Clock is a hybrid logical clock: milliseconds since 1970 in the upper 48
// bits, a counter in the lower 16. It orders the versions of a shared row.
//
// Source: Kulkarni et al., Logical Physical Clocks (2014), with the physical
// part in whole milliseconds.
type Clock uint64

// Value is what a column holds: nil, int64, float64, string or []byte.
type Value any

// Row is what a transaction says of one row.
type Row struct {
	Table   string
	Key     string           // 1 to MaxKey bytes
	Columns map[string]Value // of an owned row: those that changed; of a shared one: all
	Deleted bool             // then Columns is empty
	Clock   Clock            // shared rows only; 0 for owned ones
}

// Transaction is one step of a stream: its rows appear together or not at all.
type Transaction struct {
	Position
	At   int64 // when the site wrote it, by its clock: nanoseconds since 1970
	Rows []Row
}

// Bounds of what is taken in; what exceeds them is quarantined.
const (
	MaxKey     = 512     // bytes
	MaxValue   = 1 << 20 // bytes of one value
	MaxRow     = 2 << 20 // bytes of one encoded row
	MaxRows    = 1024    // of one transaction; more are cut into several
	MaxTx      = 8 << 20 // bytes of one encoded transaction
	MaxColumns = 64      // of one row
	MaxName    = 64      // bytes of the name of a table, a column or a site
)

// The replicated tables, without their suffix "_rows".
const (
	TableWorkers   = "worker"
	TableMachines  = "machine"
	TableVolumes   = "volume"
	TableImages    = "image"
	TableApps      = "app"
	TableSecrets   = "secret"
	TableReleases  = "release"
	TableCancelled = "cancelled"
	TableForgotten = "forgotten"
	TableTokens    = "token"
)

// Gone says that a row is deleted. Apps and tokens are not: their end is part of
// their row.
func Gone(table, key string) Row { return Row{Table: table, Key: key, Deleted: true} }
