package gossip

import (
	"context"
	"log/slog"
	"time"

	"github.com/bourse-dev/bourse"
)

// publishTimeout bounds the waiting for others to receive it.
const publishTimeout = 500 * time.Millisecond

// SetLeaving reports whether this worker is leaving: takes no more orders.
func (m *Members) SetLeaving(leaving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.self.member.Leaving != leaving {
		m.self.member.Leaving = leaving
		poke(m.changes)
	}
}

// SetTag takes the tag that this worker has chosen at its first start; see
// TagInUse.
func (m *Members) SetTag(tag bourse.WorkerTag) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self.member.Tag = tag & 0xffffff
	poke(m.changes)
}

// Renew signs what we say of ourselves again: our certificate is another one.
func (m *Members) Renew() { poke(m.changes) }

// publish sends the others what changed of ourselves, until ctx ends.
func (m *Members) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changes:
		}
		if err := m.list.UpdateNode(publishTimeout); err != nil {
			m.config.Log.Debug("a change of ourselves was not sent yet", slog.Any("err", err)) // it stays in the queue
		}
	}
}
