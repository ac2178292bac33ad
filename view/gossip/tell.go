package gossip

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse/view/gossip/sealed"
)

// Rumours go with the packets of the membership, and in packets of their own:
// while many members come or go, news of the membership fills its packets for
// as long as a minute.
const (
	tellTo    = 10 // random members, each Timing.Gossip, at most: as long as there is something
	tellTries = 10 // to find one that is not ourselves
	around    = 6  // what memberlist adds: a type and a checksum
)

// tellRumours passes on what there is to tell, until ctx ends.
func (m *Members) tellRumours(ctx context.Context) {
	limit := sealed.Room(m.config.label()) - around
	tick := time.NewTicker(m.config.Timing.Gossip)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.tellSome(limit)
		}
	}
}

// tellSome sends a packet to each of a few members of chance.
func (m *Members) tellSome(limit int) {
	if m.list.NumMembers() < 2 {
		return
	}
	var members []*memberlist.Node
	for range tellTo {
		messages := m.config.Rumours.Tell(0, limit)
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

// peers gives every member as it was when it was last heard of: what
// memberlist itself gives it changes while others read it.
func (m *Members) peers() []*memberlist.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*memberlist.Node, 0, len(m.nodes))
	for _, n := range m.nodes {
		out = append(out, n.peer)
	}
	return out
}

// someone gives a member of chance that is not ourselves.
func (m *Members) someone(members []*memberlist.Node) *memberlist.Node {
	if len(members) == 0 {
		return nil
	}
	for range tellTries {
		if n := members[rand.IntN(len(members))]; n.Name != m.name {
			return n
		}
	}
	return nil
}
