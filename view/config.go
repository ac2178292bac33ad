package view

import (
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// Config says where a view is and whose it is.
type Config struct {
	Path    string          // the SQLite file; "": in memory, for tests and simulations
	Cluster string          // the cluster's id; a file of another one is replaced
	Site    bourse.WorkerID // ours: this server's id; required
	Keys    wire.Keys       // default: a Key in a file beside Path
	Role    bourse.Role     // of that key; default RoleBroker
	// Certified says that Keys are certificates. Then a machine or volume of
	// another site belongs to an app only if a broker has placed it there.
	Certified bool
	Now       func() time.Time // default time.Now
	Log       *slog.Logger     // default: discards

	QueueBytes int // of transactions that wait to be applied; default 64 MiB
	RingBytes  int // of recent transactions that are kept for others; default 32 MiB

	// Fault, for tests, is called at each FaultStage of the n-th commit
	// (counted from 1). An error of SQLite, as made by sqlite.ResultCode, is
	// taken for the commit's own; any other one ends Run as if the process had
	// been killed there.
	Fault func(stage FaultStage, n uint64) error
}

// FaultStage says where Config.Fault is called.
type FaultStage int

// The stages.
const (
	FaultBefore FaultStage = iota + 1 // of a commit: nothing of it is in the file
	FaultAfter                        // of a commit: all of it is, and no one knows
	FaultApply                        // before a transaction of another site is applied in the commit to come
)

// Defaults of Config.
const (
	DefaultQueueBytes = 64 << 20
	DefaultRingBytes  = 32 << 20
)
