package gossip

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// leaveTimeout is how long a stopping member tries to notify the other members.
const leaveTimeout = time.Second

// pings is the number of pings that are sent to a rival. One ping would not be enough, because
// packets may be lost.
const pings = 3

// rivalTimeout is how long a rival may remain in the list without answering pings. A dead rival
// disappears from the list sooner, so a rival that is still listed after this time must be running.
const rivalTimeout = 10 * time.Second

// Run joins the group, and keeps this member in it until ctx is done. If it cannot reach any
// member, it continues to try. When ctx is done, it notifies the other members, and returns within
// a few seconds. It returns CodeAlreadyExists if another running server has this member's id or tag
// and takes precedence.
func (m *Members) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		m.work.Wait()
		m.leave()
	}()
	joined := make(chan struct{})
	wg.Go(func() { m.join(ctx, joined) })
	wg.Go(func() { m.publish(ctx) })
	wg.Go(func() { m.sendRumors(ctx) })
	if m.config.Proofs != nil {
		wg.Go(func() { m.prove(ctx) })
	}
	select {
	case <-joined:
	case <-ctx.Done():
		return nil
	}
	if err := m.settle(ctx); err != nil {
		return err
	}
	close(m.ready)
	return m.watch(ctx)
}

// settle checks whether this member's id and tag are free. If so, it makes the other members list
// this member.
func (m *Members) settle(ctx context.Context) error {
	m.awaitProofs(ctx)
	if err := m.checkRivals(ctx, true, nil); err != nil {
		return err
	}
	m.mu.Lock()
	m.self.pending = false
	m.mu.Unlock()
	poke(m.changes)
	return nil
}

// watch reports lost members to OnLost and checks for rivals whenever the list changes.
func (m *Members) watch(ctx context.Context) error {
	doubted := map[string]time.Time{} // time when each rival first failed to answer, by name
	again := time.NewTicker(rivalTimeout)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.watchWork:
		case <-again.C:
			if len(doubted) == 0 {
				continue
			}
		}
		for _, l := range m.takeLost() {
			m.config.Log.Info("member lost", slog.Any("member", l.member.ID), slog.String("role", string(l.member.Role)))
			m.config.OnLost(l.member, l.at)
		}
		if err := m.checkRivals(ctx, false, doubted); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

// watchPause is the minimum time between two checks while the list is changing. It limits the cost
// of the checks, because each check scans the whole list.
const watchPause = 20 * time.Millisecond

func (m *Members) takeLost() []loss {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lost
	m.lost = nil
	return l
}

// checkRivals returns CodeAlreadyExists if a running member that takes precedence has our id or, if fresh is true, our
// tag. A rival that does not answer may have been killed recently. checkRivals records in doubted when such a rival
// first failed to answer. Without proofs of identity, the rival counts as running if it is still listed rivalTimeout
// later. With proofs, a rival that does not answer is ignored.
func (m *Members) checkRivals(ctx context.Context, fresh bool, doubted map[string]time.Time) error {
	rivals := m.rivals(fresh)
	maps.DeleteFunc(doubted, func(name string, _ time.Time) bool {
		return !slices.ContainsFunc(rivals, func(n node) bool { return n.name == name })
	})
	for _, n := range rivals {
		seen, known := doubted[n.name]
		switch {
		case m.isRunning(ctx, n), known && m.config.Proofs == nil && time.Since(seen) >= rivalTimeout:
			return inUse(n, n.member.ID == m.config.Self.ID)
		case !known && doubted != nil:
			doubted[n.name] = time.Now()
		}
	}
	return nil
}

func inUse(by node, id bool) error {
	if !id {
		return bourse.Errorf(bourse.CodeAlreadyExists, "worker tag %s is already in use by %s at %s", by.member.Tag, by.member.ID, by.gossip)
	}
	return bourse.Errorf(bourse.CodeAlreadyExists, "%s id %s is already in use by the server at %s", by.member.Role, by.member.ID, by.gossip)
}

// rivals returns the members that have our id or tag and may take precedence over this member. If this member takes
// precedence over another one with the same id or tag, rivals does not return that member, but logs an error about it.
func (m *Members) rivals(fresh bool) []node {
	m.mu.Lock()
	var mayKeepUsOut, shouldGo []node
	for _, n := range m.nodes {
		if !n.proven {
			continue
		}
		sameID := n.name != m.name && n.member.ID == m.self.member.ID
		switch {
		case sameID && n.gossip == m.gossip: // an earlier boot of this server that is still listed
		case rival(m.self, n), fresh && !n.pending && sharesTag(m.self, n):
			mayKeepUsOut = append(mayKeepUsOut, n)
		case sameID, sharesTag(m.self, n):
			shouldGo = append(shouldGo, n)
		}
	}
	m.mu.Unlock()
	for _, n := range shouldGo {
		if m.quiet.Due("twice " + n.name) {
			m.config.Log.Error("another server uses this server's id or tag", slog.Any("member", n.member.ID),
				slog.String("tag", n.member.Tag.String()), slog.String("address", n.gossip))
		}
	}
	return mayKeepUsOut
}

// isRunning reports whether a member is running. In a cluster without certificates, the member must
// answer a ping. In a cluster with certificates, the server at the member's API address must prove
// that it has the member's id and role, and must list the member's name among its gossip names.
func (m *Members) isRunning(ctx context.Context, n node) bool {
	if m.config.Proofs != nil {
		ctx, cancel := context.WithTimeout(ctx, proofTimeout)
		defer cancel()
		names, err := m.config.Proofs.Names(ctx, n.member)
		return err == nil && slices.Contains(names, n.name)
	}
	addr, err := net.ResolveUDPAddr("udp", n.gossip) // n.gossip contains an IP address, so no name is resolved
	if err != nil || n.gossip == m.gossip || ctx.Err() != nil {
		return false // another member at this process's own address cannot be running
	}
	answered := make(chan bool, pings)
	for range pings { // in parallel, because a server that is being restarted waits for the result
		go func() {
			_, err := m.list.Ping(n.name, addr)
			answered <- err == nil
		}()
	}
	lives := false
	for range pings {
		lives = <-answered || lives
	}
	return lives
}

// leave notifies the other members that this member is leaving, and stops the gossip.
func (m *Members) leave() {
	if err := m.list.Leave(leaveTimeout); err != nil {
		m.config.Log.Info("leave group failed", slog.Any("err", err))
	}
	if err := m.list.Shutdown(); err != nil {
		m.config.Log.Warn("shut down gossip failed", slog.Any("err", err))
	}
}
