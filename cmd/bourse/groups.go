package main

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view/gossip"
)

// openGroups joins the membership of each network that the server is on.
func (s *server) openGroups() error {
	c := gossip.Config{Self: s.self, ClusterID: s.config.Cluster, Rumours: s.replica.Replicator, Log: s.log}
	if s.creds != nil {
		c.Proofs = proofs{s.creds, s.wire}
	}
	if s.config.GossipKey != "" {
		keys, err := admission.LoadGossipKeys(s.config.GossipKey, s.setGossipKeys)
		if err != nil {
			return err
		}
		c.Key, c.MoreKeys = keys.Get()[0], keys.Get()[1:]
		s.watched = append(s.watched, keys)
	}
	if s.link != nil {
		there := c
		there.Transport, there.Find = s.link.Transport(), s.link.Find
		if err := s.openGroup(there); err != nil {
			return err
		}
	}
	if s.link == nil || s.config.NATS.Both {
		c.Bind, c.Join = s.config.Gossip, s.config.Join
		if len(c.Key) == 0 && c.Bind.Addr().Unmap().IsLoopback() {
			c.Key = s.secret.For("gossip")
		}
		c.Self.Address = s.directAddress()
		return s.openGroup(c)
	}
	return nil
}

func (s *server) openGroup(c gossip.Config) error {
	group, err := gossip.Open(c)
	if err == nil {
		s.groups = append(s.groups, group)
	}
	return err
}

// setGossipKeys changes the keys of all groups.
func (s *server) setGossipKeys(keys [][]byte) error {
	for _, group := range s.groups {
		if err := group.SetKeys(keys); err != nil {
			return err
		}
	}
	return nil
}

// members returns the members of all groups, each once.
func (s *server) members() []bourse.Member {
	if len(s.groups) == 1 {
		return s.groups[0].Members()
	}
	seen := map[bourse.WorkerID]bool{}
	var out []bourse.Member
	for _, group := range s.groups {
		for _, m := range group.Members() {
			if !seen[m.ID] {
				seen[m.ID] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// proxies returns the members that are proxies.
func (s *server) proxies() []bourse.Member {
	return slices.DeleteFunc(s.members(), func(m bourse.Member) bool { return m.Role != bourse.RoleProxy })
}

// changed returns a channel that is closed when the members may have changed.
func (s *server) changed() <-chan struct{} {
	if len(s.groups) == 1 {
		return s.groups[0].Changed()
	}
	s.either.mu.Lock()
	defer s.either.mu.Unlock()
	return s.either.changed
}

// either is the changes of two groups as one.
type either struct {
	mu      sync.Mutex
	changed chan struct{}
}

func (e *either) run(ctx context.Context, one, other *gossip.Members) {
	for ctx.Err() == nil {
		a, b := one.Changed(), other.Changed()
		e.mu.Lock()
		before := e.changed
		e.changed = make(chan struct{})
		e.mu.Unlock()
		close(before) // after a and b were taken, so that nothing is missed
		select {
		case <-a:
		case <-b:
		case <-ctx.Done():
		}
	}
}

// membership is the stage in which the others know of this server.
func (s *server) membership() stage {
	return stage{name: "membership", run: func(ctx context.Context) error {
		running, ctx := errgroup.WithContext(ctx)
		for _, group := range s.groups {
			running.Go(func() error { return group.Run(ctx) })
		}
		if len(s.groups) > 1 {
			running.Go(func() error {
				s.either.run(ctx, s.groups[0], s.groups[1])
				return nil
			})
		}
		if s.link != nil {
			running.Go(func() error { return s.tellCounts(ctx) })
		}
		return running.Wait()
	}}
}

// met is closed once the others have been met, or there are none.
func (s *server) met() <-chan struct{} { return s.groups[0].Ready() }
