package gossip

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
)

// Rumors are sent in the packets of the membership and in separate packets. The separate ones are
// necessary because, while many members join or leave, updates of the membership fill its packets
// for up to a minute.
const (
	rumorFanout   = 10 // maximum number of random members to send to in each Timing.Gossip interval
	sendTries     = 10 // maximum number of attempts to find a random member other than this one
	rumorOverhead = 6  // bytes that memberlist adds to a message: a type and a checksum
)

// sendRumors sends pending rumors until ctx ends.
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

// sendPackets sends a packet to each of a few random members.
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

// peers returns copies of all members, because memberlist changes its own nodes while others read them.
func (m *Members) peers() []*memberlist.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*memberlist.Node, 0, len(m.nodes))
	for _, n := range m.nodes {
		out = append(out, n.peer)
	}
	return out
}

// randomMember returns a random member other than this one, or nil if it finds none.
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
