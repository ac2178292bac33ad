// Package volumes manages a worker's volumes: claims, snapshots, copies to and from other
// workers, and mounts for machines.
//
// Disk space for a volume and its snapshots is taken from the ledger before it is used (invariant 4). Each operation is
// a run that is recorded before it begins, and the runs on one volume execute one after the other (invariant 5). A
// volume belongs to at most one machine; the transaction that records a machine checks this. An interrupted copy from
// another worker is resumed until it is complete or stuck.
package volumes

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Config configures a worker's volumes.
type Config struct {
	State  *state.State
	Admit  *admit.Host
	Host   Host   // nil if the worker was started without volumes
	Peers  Peers  // nil if no other worker can be reached
	Dir    string // the worker's data directory
	Forget bool   // remove volumes that exist on the host but have no record, instead of refusing to start
}

// Volumes manages a worker's volumes. Its methods are safe for concurrent use.
type Volumes struct {
	state  *state.State
	admit  *admit.Host
	host   Host
	peers  Peers
	dir    string
	forget bool

	defs    definitions
	exports exports
	grants  grants
}

// New returns a worker's volumes and registers their operations with the engine.
func New(cfg Config) *Volumes {
	vs := &Volumes{state: cfg.State, admit: cfg.Admit, host: cfg.Host, peers: cfg.Peers, dir: cfg.Dir, forget: cfg.Forget}
	if vs.host == nil {
		vs.host = noHost{}
	}
	vs.define()
	return vs
}

// request contains the parameters of a run on a volume.
type request struct {
	Volume    bourse.VolumeID     `json:"volume"`
	Snapshot  bourse.SnapshotID   `json:"snapshot,omitempty"`  // the snapshot to take
	Snapshots []bourse.SnapshotID `json:"snapshots,omitempty"` // the snapshots to remove
}

// result passes values from one step of a run to the next. A run's outcome is stored in the volume's record.
type result struct {
	Failure *failure `json:"failure,omitempty"`
}

// failure is an error that a step passes to a later step.
type failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

func (f *failure) err() error { return bourse.Errorf(f.Code, "%s", f.Message) }

type (
	volumeRun = fsm.Run[request, result]
	volumeDef = fsm.Def[request, result]
)

// definitions contains the operations on volumes.
type definitions struct {
	create   *volumeDef // creates an order's volume, or removes all traces of it
	fill     *volumeDef // fills an order's volume from a snapshot or another volume
	extend   *volumeDef
	snapshot *volumeDef
	expire   *volumeDef // removes expired snapshots
	destroy  *volumeDef
}

const (
	makeAttempts = 5  // low, because a claim is waiting
	fillAttempts = 40 // about 20 minutes in total if the source stays unavailable
	// copyLimit is the time limit for copying a whole volume on one host.
	copyLimit = time.Hour
)

// define registers the operations with the engine.
func (vs *Volumes) define() {
	define := func(name string) *volumeDef { return fsm.Define[request, result](name) }
	copying := fsm.StepOptions{Timeout: copyLimit}
	vs.defs = definitions{
		create: define("volume.create").Step("make", vs.makeStep),
		// This step has no time limit, because fill notices when the source stops sending.
		fill:     define("volume.fill").Step("fill", vs.fillStep, fsm.StepOptions{Timeout: -1, Attempts: fillAttempts}),
		extend:   define("volume.extend").Step("extend", vs.extendStep),
		snapshot: define("volume.snapshot").Step("take", vs.takeStep, copying).Step("settle", vs.settleStep),
		expire:   define("volume.expire").Step("remove", vs.expireStep),
		destroy:  define("volume.destroy").Step("remove", vs.removeStep),
	}
	d := &vs.defs
	vs.state.Engine.Register(d.create, d.fill, d.extend, d.snapshot, d.expire, d.destroy)
}

// begin starts a run on a volume. In the same transaction, it calls write to record the operation's intent. begin never
// joins a run in progress, because that run may already have finished its work. write must therefore check the volume's
// record to decide whether anything is left to do.
func (vs *Volumes) begin(ctx context.Context, def *volumeDef, req request, write func(*store.Tx) error) (*fsm.Handle[result], error) {
	run, err := def.Start(ctx, vs.state.Engine, state.OfVolume(req.Volume), req, fsm.StartOptions{Queue: true, Write: state.InTx(write)})
	if err == nil {
		vs.state.Volumes.Applied(req.Volume)
	}
	return run, err
}

// isFinal reports whether an error from the host is final, which means that another attempt would fail in the same way.
func isFinal(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeInvalid, bourse.CodeNotFound, bourse.CodeFailedPrecondition, bourse.CodeInsufficient, bourse.CodeForbidden:
		return true
	default:
		return false
	}
}
