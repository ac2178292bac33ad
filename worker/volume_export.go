package worker

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
)

// exportRest is how long after its last reading a snapshot is not removed:
// somebody may be at it.
const exportRest = 10 * time.Minute

// exports remembers what other workers read here. It is a courtesy to them,
// and is forgotten with the process.
type exports struct {
	mu   sync.Mutex
	read map[bourse.SnapshotID]time.Time // guarded by mu
}

// note says that a snapshot is read now. Who reads it again soon may go on
// after its time.
func (e *exports) note(s *bourse.Snapshot, now time.Time) (may bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.read[s.ID]; expired(s, now) && (!ok || now.Sub(at) >= exportRest) {
		return false
	}
	if e.read == nil {
		e.read = map[bourse.SnapshotID]time.Time{}
	}
	e.read[s.ID] = now
	return true
}

// recent gives the snapshots that were read lately, and forgets the others.
func (e *exports) recent(now time.Time) map[bourse.SnapshotID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[bourse.SnapshotID]bool{}
	for id, at := range e.read {
		if now.Sub(at) < exportRest {
			out[id] = true
		} else {
			delete(e.read, id)
		}
	}
	return out
}

// exported checks that what another worker asks for can be read, by the
// worker's own record. The id is that of a snapshot, a volume, or a manifest
// of a volume, which names it.
func (w *Worker) exported(id string) error {
	if snap := bourse.SnapshotID(id); snap.Validate() == nil {
		return w.store.View(func(tx *store.Tx) error {
			s, _, err := tx.Snapshot(snap)
			if err == nil && s.State == bourse.SnapshotCreating {
				err = bourse.Errorf(bourse.CodeUnavailable, "snapshot %s is being taken", snap)
			}
			if err == nil && (s.State != bourse.SnapshotCreated || !w.volumes.exports.note(&s, time.Now())) {
				err = errNoSnapshot
			}
			return err
		})
	}
	v, err := w.volumeNow(volumeOfManifest(id))
	switch {
	case err != nil:
		return err
	case v.State.Usable():
		return nil
	case v.State == bourse.VolumeCreating || v.State == bourse.VolumeRestoring || v.State == bourse.VolumeHydrating:
		return bourse.Errorf(bourse.CodeUnavailable, "volume %s is %s", v.ID, v.State)
	}
	return errNoVolume
}

// volumeOfManifest finds the volume's id in the id of a manifest.
func volumeOfManifest(id string) bourse.VolumeID {
	for part := range strings.FieldsSeq(id) {
		if v := bourse.VolumeID(part); v.Validate() == nil {
			return v
		}
	}
	return bourse.VolumeID(id)
}

// manifest tells another worker what a volume or snapshot holds. A volume in
// use is copied for that, which needs room.
func (w *Worker) manifest(ctx context.Context, id string) (volume.Manifest, error) {
	if err := w.store.Sync(ctx); err != nil { // it may have been made a moment ago
		return volume.Manifest{}, err
	}
	err := w.exported(id)
	if err == nil {
		err = w.roomToExport(ctx, bourse.VolumeID(id))
	}
	if err != nil {
		return volume.Manifest{}, err
	}
	return w.volumes.host.Manifest(ctx, id)
}

// roomToExport refuses to copy an attached volume when the ledger has no room
// for a copy. It holds nothing: the copy lives as long as it is being read.
func (w *Worker) roomToExport(ctx context.Context, id bourse.VolumeID) error {
	if id.Validate() != nil {
		return nil //nolint:nilerr // it is a snapshot's
	}
	v, err := w.volumeNow(id)
	if err != nil || v.Machine == "" {
		return err
	}
	room := snapshotDisk(w.snapshotRoom(ctx, &v))
	return w.store.View(func(tx *store.Tx) error {
		committed, err := tx.CommittedAt(time.Now())
		if err != nil {
			return err
		}
		if r := w.ledger.fits(committed, bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: int64(room)}}); r != nil {
			return insufficient(r, "could not copy volume "+string(id))
		}
		return nil
	})
}

// chunk gives another worker one chunk of a manifest.
func (w *Worker) chunk(ctx context.Context, id string, n int, to io.Writer) error {
	if err := w.exported(id); err != nil {
		return err
	}
	return w.volumes.host.Chunk(ctx, id, n, to)
}

// giveBack ends the reading of a manifest.
func (w *Worker) giveBack(ctx context.Context, id string) error {
	if err := w.exported(id); err != nil {
		return err
	}
	return w.volumes.host.Release(ctx, id)
}
