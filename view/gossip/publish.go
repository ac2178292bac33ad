package gossip

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
)

// publishTimeout is how long publish waits for memberlist to send an update of this member's
// metadata.
const publishTimeout = 500 * time.Millisecond

// publishPause is the delay before an update that was dropped is sent again.
const publishPause = 100 * time.Millisecond

// SetLeaving sets whether this worker is leaving. A worker that is leaving does not accept any more
// orders.
func (m *Members) SetLeaving(leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.self.member.Leaving != leaving {
		m.self.member.Leaving = leaving
		poke(m.changes)
	}
}

// SetTag sets this worker's tag. A worker chooses its tag when it starts for the first time; see
// TagInUse.
func (m *Members) SetTag(tag bourse.WorkerTag) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self.member.Tag = tag & 0xffffff
	poke(m.changes)
}

// Renew signs this member's metadata again. Call it after the server's certificate has changed.
func (m *Members) Renew() { poke(m.changes) }

// publish tells the other members about changes to this member's metadata until ctx is done.
func (m *Members) publish(ctx context.Context) {
	for last := false; !last; {
		select {
		case <-ctx.Done():
			select {
			case <-m.changes: // a worker that stops has just announced that it is leaving
				last = true
			default:
				return
			}
		case <-m.changes:
		}
		if err := m.list.UpdateNode(publishTimeout); err != nil {
			m.config.Log.Debug("send member metadata failed", slog.Any("err", err)) // the update remains queued
		}
		if m.published() {
			continue
		}
		poke(m.changes)
		select {
		case <-ctx.Done():
		case <-time.After(publishPause):
		}
	}
}

// published reports whether memberlist has accepted this member's latest metadata. memberlist drops an update if this
// member refutes a suspicion at the same time, because the refutation may have a greater incarnation number than the
// update.
func (m *Members) published() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.nodes[m.name].peer
	return own != nil && bytes.Equal(own.Meta, m.latest)
}
