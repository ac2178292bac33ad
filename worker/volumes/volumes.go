// Package volumes makes and keeps a worker's volumes: claims of them, their
// snapshots, copies to and from other workers, and what machines mount.
//
// What a volume and its snapshots take is in the ledger before it is on the
// disk (invariant 4). Each operation is a run whose intent is recorded first,
// serialised per volume (invariant 5); a volume has one machine at a time,
// which is decided in the transaction that records the machine. A copy from
// another worker goes on until it is whole, or is seen to be stuck.
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

// Config says what Volumes stand on.
type Config struct {
	State  *state.State
	Admit  *admit.Host
	Host   Host   // nil: the worker has none; those that it has records of wait
	Peers  Peers  // nil: no other worker can be reached
	Dir    string // of the worker's data
	Forget bool   // remove volumes of the host that the store does not know, rather than refusing to start
}

// Volumes are a worker's volumes. The methods are safe for concurrent use.
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

// New makes the volumes of a worker and registers their operations. It starts
// nothing.
func New(cfg Config) *Volumes {
	vs := &Volumes{state: cfg.State, admit: cfg.Admit, host: cfg.Host, peers: cfg.Peers, dir: cfg.Dir, forget: cfg.Forget}
	if vs.host == nil {
		vs.host = noHost{}
	}
	vs.define()
	return vs
}

// request is what every run about a volume is asked.
type request struct {
	Volume    bourse.VolumeID     `json:"volume"`
	Snapshot  bourse.SnapshotID   `json:"snapshot,omitempty"`  // to take
	Snapshots []bourse.SnapshotID `json:"snapshots,omitempty"` // to remove
}

// result is what one step passes to the next. What a run has done is in the
// volume's record.
type result struct {
	Failure *failure `json:"failure,omitempty"`
}

// failure is an error that outlives its step.
type failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

func (f *failure) err() error { return bourse.Errorf(f.Code, "%s", f.Message) }

type (
	volumeRun = fsm.Run[request, result]
	volumeDef = fsm.Def[request, result]
)

// definitions are the operations on volumes. They are serialised per volume.
type definitions struct {
	create   *volumeDef // an order's volume: make it, or leave nothing
	fill     *volumeDef // an order's volume from a snapshot or another volume, perhaps another worker's
	extend   *volumeDef
	snapshot *volumeDef
	expire   *volumeDef // removes snapshots
	destroy  *volumeDef
}

const (
	makeAttempts = 5  // while the caller of a claim waits
	fillAttempts = 40 // of a source that is away: some 20 minutes
	// copyLimit is how long the copying of a whole volume on one host may take.
	copyLimit = time.Hour
)

// define registers the operations with the engine.
func (vs *Volumes) define() {
	define := func(name string) *volumeDef { return fsm.Define[request, result](name) }
	copying := fsm.StepOptions{Timeout: copyLimit}
	vs.defs = definitions{
		create: define("volume.create").Step("make", vs.makeStep),
		// A copy from another worker takes as long as it takes; a source that
		// no longer sends is noticed by itself.
		fill:     define("volume.fill").Step("fill", vs.fillStep, fsm.StepOptions{Timeout: -1, Attempts: fillAttempts}),
		extend:   define("volume.extend").Step("extend", vs.extendStep),
		snapshot: define("volume.snapshot").Step("take", vs.takeStep, copying).Step("settle", vs.settleStep),
		expire:   define("volume.expire").Step("remove", vs.expireStep),
		destroy:  define("volume.destroy").Step("remove", vs.removeStep),
	}
	d := &vs.defs
	vs.state.Engine.Register(d.create, d.fill, d.extend, d.snapshot, d.expire, d.destroy)
}

// begin starts a run on a volume whose intent is recorded by write in the same
// transaction. It never joins a run that is in progress: that one may be past
// its work already, so write decides by the volume's record whether there is
// anything left to do.
func (vs *Volumes) begin(ctx context.Context, def *volumeDef, req request, write func(*store.Tx) error) (*fsm.Handle[result], error) {
	run, err := def.Start(ctx, vs.state.Engine, state.OfVolume(req.Volume), req, fsm.StartOptions{Queue: true, Write: state.InTx(write)})
	if err == nil {
		vs.state.Volumes.Changed(req.Volume)
	}
	return run, err
}

// isAnswer reports whether an error of the host is for good: repeating what was
// asked returns it again.
func isAnswer(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeInvalid, bourse.CodeNotFound, bourse.CodeFailedPrecondition, bourse.CodeInsufficient, bourse.CodeForbidden:
		return true
	default:
		return false
	}
}
