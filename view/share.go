package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// What one site may have in everyone's view, and how many may have something.
// A worker with ten thousand machines has a tenth of it.
const (
	MaxSiteRows  = 1 << 18
	MaxSiteBytes = 512 << 20
	maxStreams   = 1 << 16
	maxEpochs    = 4 // of a site: of those before its newest, only what all share still counts
)

// forgetAfter is how long a stream without rows is kept after its last
// transaction: a member that comes back later begins with a snapshot.
const forgetAfter = 24 * time.Hour

// checkShare refuses what exceeds a site's share; what makes it smaller gets in.
func (b *batch) checkShare(r, old wire.Version) error {
	h := b.head(wire.Stream{Site: r.Site, Epoch: b.newestOf(r.Site)})
	grows := r.Size() - old.Size()
	if old.Table == "" {
		if h.rows >= MaxSiteRows {
			return fmt.Errorf("its site has %d rows: no more are taken in", h.rows)
		}
		grows = r.Size()
	}
	if grows > 0 && h.bytes+grows > MaxSiteBytes {
		return fmt.Errorf("its site has %d bytes: no more are taken in", h.bytes)
	}
	return nil
}

// outlived reports whether a stream is one that would be forgotten at once: its
// site has begun enough later ones.
func (b *batch) outlived(s wire.Stream) bool {
	if b.head(s).by != nil {
		return false
	}
	epochs := b.epochsOf(s.Site)
	return len(epochs) >= maxEpochs && s.Epoch < epochs[0]
}

// epochsOf returns the epochs of a site's streams, in order.
func (b *batch) epochsOf(site bourse.WorkerID) []uint64 {
	if epochs, ok := b.epochs[site]; ok {
		return epochs
	}
	return b.base.epochs[site]
}

// makeRoom notes a new stream, and forgets others for it: earlier
// ones of its site, and where there are too many altogether those that matter
// least.
func (b *batch) makeRoom(s wire.Stream) error {
	if len(b.base.heads)+len(b.heads) >= maxStreams {
		if err := b.evict(maxStreams / 64); err != nil {
			return err
		}
	}
	delete(b.gone, s)
	epochs := append(slices.Clone(b.epochsOf(s.Site)), s.Epoch)
	slices.Sort(epochs)
	b.epochs[s.Site] = epochs
	for _, epoch := range epochs[:max(len(epochs)-maxEpochs, 0)] {
		if of := (wire.Stream{Site: s.Site, Epoch: epoch}); of != b.self {
			if err := b.forget(of); err != nil {
				return err
			}
		}
	}
	return nil
}

// evict forgets some sites: first those that own nothing, and never one that is
// heard from.
func (b *batch) evict(some int) error {
	alive, err := b.alive()
	if err != nil {
		return err
	}
	var idle []wire.Stream
	for s := range b.base.heads {
		if !alive[s.Site] && !b.gone[s] {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(x, y wire.Stream) int {
		a, c := b.head(x), b.head(y)
		return cmp.Or(cmp.Compare(min(a.rows, 1), min(c.rows, 1)), cmp.Compare(a.at, c.at))
	})
	for _, s := range idle[:min(some, len(idle))] {
		if b.newestOf(s.Site) == s.Epoch {
			if err := b.disown(s.Site); err != nil {
				return err
			}
		}
		if err := b.forget(s); err != nil {
			return err
		}
	}
	return nil
}

// alive returns the sites that are heard from, and our own.
func (b *batch) alive() (map[bourse.WorkerID]bool, error) {
	out := map[bourse.WorkerID]bool{b.self.Site: true}
	err := schema.Query(b.conn, "SELECT site FROM sites WHERE alive = 1", func(s *sqlite.Stmt) error {
		out[bourse.WorkerID(s.ColumnText(0))] = true
		return nil
	})
	return out, err
}

// forget drops what is known of a stream. The shared rows that it wrote stay:
// they prove themselves.
func (b *batch) forget(s wire.Stream) error {
	if err := schema.Run(b.conn, "DELETE FROM streams WHERE site = ? AND epoch = ?", s.Site, s.Epoch); err != nil {
		return err
	}
	delete(b.heads, s)
	b.gone[s] = true
	left := slices.DeleteFunc(slices.Clone(b.epochsOf(s.Site)), func(epoch uint64) bool { return epoch == s.Epoch })
	b.epochs[s.Site] = left
	if b.newestOf(s.Site) == s.Epoch {
		b.newest[s.Site] = slices.Max(append(left, 0))
	}
	return nil
}

// over reports whether a stream has served its time: nothing is left of it, and
// nothing came of it for long. All members find so at about the same
// moment, and do not count it when they compare, even if they still have it.
func (h head) over(now time.Time) bool {
	return h.rows == 0 && h.hash == 0 && h.at < now.Add(-forgetAfter).UnixNano()
}

// forgetOver drops the streams that are over, and sites of which nothing is
// left. Those of members stay: they need no snapshot for their next word.
func (b *batch) forgetOver() error {
	alive, err := b.alive()
	if err != nil {
		return err
	}
	for s, h := range b.base.heads {
		if !alive[s.Site] && s != b.self && h.over(b.now) {
			if err := b.forget(s); err != nil {
				return err
			}
		}
	}
	err = schema.Run(b.conn, "DELETE FROM sites WHERE coalesce(alive, 0) = 0 AND heard_at < ? AND site NOT IN (SELECT site FROM streams)",
		b.now.Add(-forgetAfter).UnixNano())
	b.written = b.written || b.conn.Changes() > 0
	return err
}
