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

// leaveTimeout is how long a member that ends tries to notify the others.
const leaveTimeout = time.Second

// pings is how often a rival is asked whether it lives: packets get lost.
const pings = 3

// doubt is how long a rival may be in the list and not answer. One that is dead
// is gone from it sooner; one that stays is only too far away for a ping.
const doubt = 10 * time.Second

// Run joins the group and keeps this member in it until ctx ends; then it
// notifies the others, and has ended within a few seconds. No one to join is no
// error: it goes on calling. CodeAlreadyExists means that the id or the tag of
// this member belongs to another living one, which was there first.
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
	wg.Go(func() { m.sendRumours(ctx) })
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

// settle finds out whether the id and tag are free and, if so, has the others
// list this member.
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

// watch reports losses and looks out for rivals, as the list changes.
func (m *Members) watch(ctx context.Context) error {
	doubted := map[string]time.Time{} // rivals by name, and when they were first seen
	again := time.NewTicker(doubt)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.noticed:
		case <-again.C:
			if len(doubted) == 0 {
				continue
			}
		}
		for _, l := range m.takeLost() {
			m.config.Log.Info("a member is gone", slog.Any("member", l.member.ID), slog.String("role", string(l.member.Role)))
			m.config.OnLost(l.member, l.at)
		}
		if err := m.checkRivals(ctx, false, doubted); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchRest):
		}
	}
}

// watchRest is the time between looks while the list changes: each goes
// through the whole list.
const watchRest = 20 * time.Millisecond

func (m *Members) takeLost() []loss {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.lost
	m.lost = nil
	return l
}

// checkRivals returns CodeAlreadyExists when a member that was there first has
// our id, or (fresh: before we are in use) our tag, and lives. One that was
// killed a moment ago looks alive to the gossip and does not answer; it is
// doubted until it has gone. Where members prove who they are, one that does not
// answer keeps no one out.
func (m *Members) checkRivals(ctx context.Context, fresh bool, doubted map[string]time.Time) error {
	rivals := m.rivals(fresh)
	maps.DeleteFunc(doubted, func(name string, _ time.Time) bool {
		return !slices.ContainsFunc(rivals, func(n node) bool { return n.name == name })
	})
	for _, n := range rivals {
		seen, known := doubted[n.name]
		switch {
		case m.lives(ctx, n), known && m.config.Proofs == nil && time.Since(seen) >= doubt:
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

// rivals returns the members that may keep us out, and logs those that should
// have been.
func (m *Members) rivals(fresh bool) []node {
	m.mu.Lock()
	var mayKeepUsOut, shouldGo []node
	for _, n := range m.nodes {
		if !n.proven {
			continue
		}
		sameID := n.name != m.name && n.member.ID == m.self.member.ID
		switch {
		case sameID && n.gossip == m.gossip: // an earlier life of ours, however long the others take to notice that it is over
		case rival(m.self, n), fresh && !n.pending && sharesTag(m.self, n):
			mayKeepUsOut = append(mayKeepUsOut, n)
		case sameID, sharesTag(m.self, n):
			shouldGo = append(shouldGo, n)
		}
	}
	m.mu.Unlock()
	for _, n := range shouldGo {
		if m.quiet.Due("twice " + n.name) {
			m.config.Log.Error("our id or tag is used by another server", slog.Any("member", n.member.ID),
				slog.String("tag", n.member.Tag.String()), slog.String("address", n.gossip))
		}
	}
	return mayKeepUsOut
}

// lives asks a member directly, by its name. Where members prove who they are, it
// is asked at its API, and must prove to have our certificate's name.
func (m *Members) lives(ctx context.Context, n node) bool {
	if m.config.Proofs != nil {
		ctx, cancel := context.WithTimeout(ctx, proofTimeout)
		defer cancel()
		names, err := m.config.Proofs.Names(ctx, n.member)
		return err == nil && slices.Contains(names, n.name)
	}
	addr, err := net.ResolveUDPAddr("udp", n.gossip) // an address, no host name
	if err != nil || n.gossip == m.gossip || ctx.Err() != nil {
		return false // where we listen, no one else does
	}
	answered := make(chan bool, pings)
	for range pings { // at once: a server that comes back waits for this
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

// leave notifies the others that we go, and ends the gossip.
func (m *Members) leave() {
	if err := m.list.Leave(leaveTimeout); err != nil {
		m.config.Log.Info("leave the group", slog.Any("err", err))
	}
	if err := m.list.Shutdown(); err != nil {
		m.config.Log.Warn("shut down the gossip", slog.Any("err", err))
	}
}
