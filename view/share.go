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

// Limits on the rows that each site owns, and on the number of streams. A worker with ten thousand
// machines uses a tenth of its limit.
const (
	MaxSiteRows  = 1 << 18
	MaxSiteBytes = 512 << 20
	maxStreams   = 1 << 16
	maxEpochs    = 4 // epochs per site; owned rows are valid only in the newest epoch, shared rows in all of them
)

// streamRetention is how long a stream without owned rows is retained after its last transaction. A
// member that was absent for longer receives a snapshot.
const streamRetention = 24 * time.Hour

// checkShare returns an error if a change would exceed its site's limits. A change that does not
// increase a row's size is always allowed.
func (b *batch) checkShare(r, old wire.Version) error {
	h := b.head(wire.Stream{Site: r.Site, Epoch: b.newestOf(r.Site)})
	grows := r.Size() - old.Size()
	if old.Table == "" {
		if h.rows >= MaxSiteRows {
			return fmt.Errorf("its site has %d rows, which is the limit", h.rows)
		}
		grows = r.Size()
	}
	if grows > 0 && h.bytes+grows > MaxSiteBytes {
		return fmt.Errorf("its site has %d bytes, and the row would exceed the limit", h.bytes)
	}
	return nil
}

// superseded reports whether a stream is new to the view but older than the maxEpochs streams that
// are stored for its site. Such a stream would be removed again immediately.
func (b *batch) superseded(s wire.Stream) bool {
	if b.head(s).by != nil {
		return false
	}
	epochs := b.epochsOf(s.Site)
	return len(epochs) >= maxEpochs && s.Epoch < epochs[0]
}

// epochsOf returns the epochs of a site's streams in ascending order.
func (b *batch) epochsOf(site bourse.WorkerID) []uint64 {
	if epochs, ok := b.epochs[site]; ok {
		return epochs
	}
	return b.base.epochs[site]
}

// makeRoom records a new stream. If there are too many streams in total, it first evicts streams of
// unreachable sites. If the new stream's site then has more than maxEpochs streams, makeRoom
// removes this site's oldest streams.
func (b *batch) makeRoom(s wire.Stream) error {
	if len(b.base.heads)+len(b.heads) >= maxStreams {
		if err := b.evictStreams(maxStreams / 64); err != nil {
			return err
		}
	}
	delete(b.gone, s)
	epochs := append(slices.Clone(b.epochsOf(s.Site)), s.Epoch)
	slices.Sort(epochs)
	b.epochs[s.Site] = epochs
	for _, epoch := range epochs[:max(len(epochs)-maxEpochs, 0)] {
		if of := (wire.Stream{Site: s.Site, Epoch: epoch}); of != b.self {
			if err := b.removeStream(of); err != nil {
				return err
			}
		}
	}
	return nil
}

// evictStreams removes at most limit streams of unreachable sites, starting with those that have no
// owned rows.
func (b *batch) evictStreams(limit int) error {
	alive, err := b.reachableSites()
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
	for _, s := range idle[:min(limit, len(idle))] {
		if b.newestOf(s.Site) == s.Epoch {
			if err := b.deleteOwned(s.Site); err != nil {
				return err
			}
		}
		if err := b.removeStream(s); err != nil {
			return err
		}
	}
	return nil
}

// reachableSites returns the sites that are reachable, including this server's.
func (b *batch) reachableSites() (map[bourse.WorkerID]bool, error) {
	out := map[bourse.WorkerID]bool{b.self.Site: true}
	err := schema.Query(b.conn, "SELECT site FROM sites WHERE alive = 1", func(s *sqlite.Stmt) error {
		out[bourse.WorkerID(s.ColumnText(0))] = true
		return nil
	})
	return out, err
}

// removeStream removes a stream. The shared rows that were written in it remain, because they contain their
// own proofs.
func (b *batch) removeStream(s wire.Stream) error {
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

// expired reports whether a stream has expired, that is, whether it has no owned rows and was last
// written more than streamRetention ago. Streams expire on all members at about the same time.
// Digests omit an expired stream even on members that still have it.
func (h head) expired(now time.Time) bool {
	return h.rows == 0 && h.hash == 0 && h.at < now.Add(-streamRetention).UnixNano()
}

// removeExpiredStreams removes expired streams, and the presence records of sites without streams.
// It retains the streams of reachable sites, so that these sites can continue their streams without
// a snapshot. It also retains the presence records of servers with certificates, because these
// records contain the time when each server was last reachable.
func (b *batch) removeExpiredStreams() error {
	alive, err := b.reachableSites()
	if err != nil {
		return err
	}
	for s, h := range b.base.heads {
		if !alive[s.Site] && s != b.self && h.expired(b.now) {
			if err := b.removeStream(s); err != nil {
				return err
			}
		}
	}
	err = schema.Run(b.conn, `DELETE FROM sites WHERE coalesce(alive, 0) = 0 AND heard_at < ?
		AND site NOT IN (SELECT site FROM streams) AND site NOT IN (SELECT key FROM certified_rows)`,
		b.now.Add(-streamRetention).UnixNano())
	b.written = b.written || b.conn.Changes() > 0
	return err
}
