package view

import (
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// Config configures a View.
type Config struct {
	Path    string          // the SQLite file; "": in memory, for tests and simulations
	Cluster string          // the cluster's ID; Open replaces a file of another cluster
	Site    bourse.WorkerID // this server's ID; required
	Keys    wire.Keys       // default: a wire.Key in a file next to Path
	Role    bourse.Role     // this server's role; default RoleBroker
	// Certified reports whether the cluster's servers have certificates. If they have, Keys
	// provides them, and another site's machine or volume counts as part of an app only if a broker
	// has signed its placement.
	Certified bool
	Now       func() time.Time // default time.Now
	Log       *slog.Logger     // default: discards all records

	// Fault is for tests. It is called at each FaultStage of the n-th commit, counted from 1. If it
	// returns an SQLite error for an unavailable or damaged file (see sqlite.ResultCode), the
	// commit fails with that error. At FaultApply, any other error counts as a failure of the
	// transaction that is being applied. At the other stages, any other error ends Run as if the
	// process had been killed.
	Fault func(stage FaultStage, n uint64) error
}

// FaultStage is a point at which Config.Fault is called.
type FaultStage int

// Stages at which Config.Fault is called.
const (
	FaultBefore FaultStage = iota + 1 // before a commit: none of its changes are in the file
	FaultAfter                        // after a commit: all of its changes are in the file, but nobody has been notified
	FaultApply                        // before another site's transaction is applied
)

const (
	queueBytes = 64 << 20 // maximum size of all transactions that wait to be applied
	ringBytes  = 32 << 20 // maximum size of all recent transactions that are retained for other members
)
