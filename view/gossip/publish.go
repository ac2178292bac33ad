package gossip

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// publishEvery is how often a change of free amounts is told at most. Anything
// else is told at once.
const publishEvery = time.Second

// publishTimeout bounds the waiting for others to have been told.
const publishTimeout = 500 * time.Millisecond

// Update says what is free on this worker and whether it is leaving (takes no
// more orders). It is cheap, to be called at every change: amounts travel
// rounded down, when they differ notably, and at most once a second. Amounts
// that are not valid are ignored.
func (m *Members) Update(free bourse.Amounts, leaving bool) {
	rounded := coarse(free)
	if rounded.Validate() != nil {
		m.config.Log.Error("free amounts are not valid", slog.Any("free", free))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.self.member.Leaving == leaving && slices.Equal(m.self.member.Free, rounded) {
		return
	}
	m.self.member.Free, m.self.member.Leaving = rounded, leaving
	poke(m.changes)
}

// SetTag takes the tag that this worker has chosen at its first start; see
// TagInUse.
func (m *Members) SetTag(tag bourse.WorkerTag) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self.member.Tag = tag & 0xffffff
	poke(m.changes)
}

// publish tells the others what changed of ourselves, until ctx ends.
func (m *Members) publish(ctx context.Context) {
	told := m.present()
	var at time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changes:
		}
		if !m.awaitTurn(ctx, told, at) {
			return
		}
		told, at = m.present(), time.Now()
		if err := m.list.UpdateNode(publishTimeout); err != nil {
			m.config.Log.Debug("nobody was told of a change yet", slog.Any("err", err)) // it stays in the queue
		}
	}
}

func (m *Members) present() node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self
}

// awaitTurn waits, while only free amounts differ from what was told, until
// they may be told again. It gives false when ctx has ended.
func (m *Members) awaitTurn(ctx context.Context, told node, at time.Time) bool {
	rest := time.NewTimer(max(0, publishEvery-time.Since(at)))
	defer rest.Stop()
	for sameButFree(told, m.present()) {
		select {
		case <-ctx.Done():
			return false
		case <-rest.C:
			return true
		case <-m.changes:
		}
	}
	return true
}
