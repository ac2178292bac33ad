package gossip

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"
)

// Rumours go with the packets of the membership, and in packets of their own:
// while many members come or go, news of the membership fills its packets for
// as long as a minute.
const (
	sendTo    = 10 // random members, each Timing.Gossip, at most: as long as there is something
	sendTries = 10 // to find one that is not ourselves
	around    = 6  // what memberlist adds: a type and a checksum
)

// sendRumours passes on what there is to send, until ctx ends.
func (m *Members) sendRumours(ctx context.Context) {
	limit := Room(m.config.label()) - around
	tick := time.NewTicker(m.config.Timing.Gossip)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.sendSome(limit)
		}
	}
}

// sendSome sends a packet to each of a few random members.
func (m *Members) sendSome(limit int) {
	if m.list.NumMembers() < 2 {
		return
	}
	var members []*memberlist.Node
	for range sendTo {
		messages := m.config.Rumours.Next(0, limit)
		if len(messages) == 0 {
			return
		}
		if members == nil {
			members = m.peers()
		}
		to := m.someone(members)
		if to == nil {
			return
		}
		for _, message := range messages {
			_ = m.list.SendBestEffort(to, message) // it would be lost as well if the packet were
		}
	}
}

// peers returns every member as memberlist last passed it: what memberlist
// itself returns it changes while others read it.
func (m *Members) peers() []*memberlist.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*memberlist.Node, 0, len(m.nodes))
	for _, n := range m.nodes {
		out = append(out, n.peer)
	}
	return out
}

// someone returns a random member that is not ourselves.
func (m *Members) someone(members []*memberlist.Node) *memberlist.Node {
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
