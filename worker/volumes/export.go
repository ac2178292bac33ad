package volumes

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
)

// exportRest is how long after its last reading a snapshot is not removed:
// a reader may come back.
const exportRest = 10 * time.Minute

// exports remembers what other workers read here. It is a courtesy to them,
// and is forgotten with the process.
type exports struct {
	mu   sync.Mutex
	read map[bourse.SnapshotID]time.Time // guarded by mu
}

// note notes that a snapshot is read now. Its reader may go on after its time if
// it comes back soon.
func (e *exports) note(s *bourse.Snapshot, now time.Time) (may bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.read[s.ID]; s.Expired(now) && (!ok || now.Sub(at) >= exportRest) {
		return false
	}
	if e.read == nil {
		e.read = map[bourse.SnapshotID]time.Time{}
	}
	e.read[s.ID] = now
	return true
}

// recent returns the snapshots that were read lately, and forgets the others.
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

// exported checks by the worker's own record that a volume or snapshot can be
// read.
func (vs *Volumes) exported(id string) error {
	if snap := bourse.SnapshotID(id); snap.Validate() == nil {
		return vs.state.Store.View(func(tx *store.Tx) error {
			s, _, err := tx.Snapshot(snap)
			if err == nil && s.State == bourse.SnapshotCreating {
				err = bourse.Errorf(bourse.CodeUnavailable, "snapshot %s is being taken", snap)
			}
			if err == nil && (s.State != bourse.SnapshotCreated || !vs.exports.note(&s, time.Now())) {
				err = errNoSnapshot
			}
			return err
		})
	}
	v, err := vs.now(bourse.VolumeID(id))
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

// Export writes the content of a volume or snapshot as a stream, for another
// worker. A volume in use is copied first, which needs space.
func (vs *Volumes) Export(ctx context.Context, id string, from volume.Position, to io.Writer) error {
	if err := vs.state.Store.Sync(ctx); err != nil { // it may have been made a moment ago
		return err
	}
	err := vs.exported(id)
	if err == nil && from.Moment == "" {
		err = vs.spaceToExport(ctx, bourse.VolumeID(id))
	}
	if err != nil {
		return err
	}
	return vs.host.Export(ctx, id, from, &noted{to: to, vs: vs, id: id, at: time.Now()})
}

// noted is the stream of a volume or snapshot. It notes every minute that it is
// still read.
type noted struct {
	to io.Writer
	vs *Volumes
	id string
	at time.Time
}

// Write implements io.Writer.
func (n *noted) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(n.at) >= time.Minute {
		if err := n.vs.exported(n.id); err != nil {
			return 0, err
		}
		n.at = now
	}
	return n.to.Write(p)
}

// spaceToExport refuses to copy a volume in use if the ledger has no space for a
// copy. It holds nothing: the copy exists as long as it is read.
func (vs *Volumes) spaceToExport(ctx context.Context, id bourse.VolumeID) error {
	if id.Validate() != nil {
		return nil //nolint:nilerr // it is a snapshot's
	}
	v, err := vs.now(id)
	if err != nil || v.Machine == "" {
		return err
	}
	space := snapshotDisk(vs.snapshotSpace(ctx, &v))
	return vs.state.Store.View(func(tx *store.Tx) error {
		r, err := vs.admit.Room(tx, nil, bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: int64(space)}})
		if r != nil {
			err = insufficient(r, "could not copy volume "+string(id))
		}
		return err
	})
}
