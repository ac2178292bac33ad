package worker

import (
	"context"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// volumes is the part of a worker that is about volumes.
type volumes struct {
	host    Volumes
	peers   Peers // nil: no other worker can be reached
	defs    volumeDefinitions
	news    *news[bourse.VolumeID]
	exports exports
	grants  grants
}

// volumeRequest is what every run about a volume is asked.
type volumeRequest struct {
	Volume    bourse.VolumeID     `json:"volume"`
	Snapshot  bourse.SnapshotID   `json:"snapshot,omitempty"`  // to take
	Snapshots []bourse.SnapshotID `json:"snapshots,omitempty"` // to remove
}

// volumeResult is what one step tells the next. What a run has done is in the
// volume's record.
type volumeResult struct {
	Failure *failure `json:"failure,omitempty"`
}

// failure is an error that outlives its step.
type failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

func (f *failure) err() error { return bourse.Errorf(f.Code, "%s", f.Message) }

type (
	volumeRun = fsm.Run[volumeRequest, volumeResult]
	volumeDef = fsm.Def[volumeRequest, volumeResult]
)

// volumeDefinitions are the operations on volumes. They are serialised per
// volume.
type volumeDefinitions struct {
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

func (w *Worker) defineVolumes() {
	define := func(name string) *volumeDef { return fsm.Define[volumeRequest, volumeResult](name) }
	copying := fsm.StepOptions{Timeout: copyLimit}
	w.volumes.host, w.volumes.peers, w.volumes.news = w.cfg.Volumes, w.cfg.Peers, newNews[bourse.VolumeID]()
	if w.volumes.host == nil {
		w.volumes.host = noVolumes{}
	}
	w.volumes.defs = volumeDefinitions{
		create: define("volume.create").Step("make", w.makeVolume),
		// A copy from another worker takes as long as it takes; a source that
		// no longer sends is noticed by itself.
		fill:     define("volume.fill").Step("fill", w.fillVolume, fsm.StepOptions{Timeout: -1, Attempts: fillAttempts}),
		extend:   define("volume.extend").Step("extend", w.extendStep),
		snapshot: define("volume.snapshot").Step("take", w.takeSnapshot, copying).Step("settle", w.settleSnapshot),
		expire:   define("volume.expire").Step("remove", w.removeSnapshots),
		destroy:  define("volume.destroy").Step("remove", w.removeVolume),
	}
	d := &w.volumes.defs
	w.engine.Register(d.create, d.fill, d.extend, d.snapshot, d.expire, d.destroy)
}

const volumePrefix = "volume/"

func resourceOfVolume(id bourse.VolumeID) string { return volumePrefix + string(id) }

// volumeOf names the volume that a run is about.
func volumeOf(resource string) (bourse.VolumeID, bool) {
	id, ok := strings.CutPrefix(resource, volumePrefix)
	return bourse.VolumeID(id), ok
}

// beginVolume starts a run on a volume whose intent is recorded by write in
// the same transaction. It never joins a run that is under way; see begin.
func (w *Worker) beginVolume(ctx context.Context, def *volumeDef, req volumeRequest, write func(*store.Tx) error) (*fsm.Handle[volumeResult], error) {
	run, err := def.Start(ctx, w.engine, resourceOfVolume(req.Volume), req, fsm.StartOptions{Queue: true, Write: inTx(write)})
	if err == nil {
		w.volumeChanged(req.Volume)
	}
	return run, err
}

// volumeChanged tells those who wait, and the view, that a volume's record has
// changed.
func (w *Worker) volumeChanged(id bourse.VolumeID) {
	w.volumes.news.tell(id)
	w.noteVolume(id, false)
}

// isAnswer tells whether an error of the host is for good: repeating what was
// asked gives it again.
func isAnswer(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeInvalid, bourse.CodeNotFound, bourse.CodeFailedPrecondition, bourse.CodeInsufficient, bourse.CodeForbidden:
		return true
	default:
		return false
	}
}
