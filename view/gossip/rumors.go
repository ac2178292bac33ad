package gossip

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
)

// Rumors are sent both in membership packets and in separate packets. Separate packets are necessary because, while
// many members join or leave, membership packets may be full for up to a minute.
const (
	rumorFanout   = 10 // maximum number of random members that receive a packet in each Timing.Gossip interval
	sendTries     = 10 // maximum number of attempts to find a random member other than this one
	rumorOverhead = 6  // bytes that memberlist adds to a message: a type and a checksum
)

// sendRumors sends pending rumors until ctx is done.
func (m *Members) sendRumors(ctx context.Context) {
	limit := MaxMessage(m.config.label()) - rumorOverhead
	tick := time.NewTicker(m.config.Timing.Gossip)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.sendPackets(limit)
		}
	}
}

// sendPackets sends pending rumors to at most rumorFanout random members, one packet each.
func (m *Members) sendPackets(limit int) {
	if m.list.NumMembers() < 2 {
		return
	}
	var members []*memberlist.Node
	for range rumorFanout {
		messages := m.config.Rumors.Next(0, limit)
		if len(messages) == 0 {
			return
		}
		if members == nil {
			members = m.peers()
		}
		to := m.randomMember(members)
		if to == nil {
			return
		}
		for _, message := range messages {
			_ = m.list.SendBestEffort(to, message) // an error has the same effect as a lost packet
		}
	}
}

// peers returns copies of all members. memberlist's own nodes must not be used here, because memberlist
// changes them concurrently.
func (m *Members) peers() []*memberlist.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*memberlist.Node, 0, len(m.nodes))
	for _, n := range m.nodes {
		out = append(out, n.peer)
	}
	return out
}

// randomMember returns a random member other than this server, or nil if it does not find one.
func (m *Members) randomMember(members []*memberlist.Node) *memberlist.Node {
	if len(members) == 0 {
		return nil
	}
	for range sendTries {
		if n := members[rand.IntN(len(members))]; n.Name != m.name {
			return n
		}
	}
	return nil
}
