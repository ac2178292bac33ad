package gossiptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/view"
)

// StartGroup starts n nodes, numbered from 1, and waits until all of them know each other. base
// configures each node, except that StartGroup sets Number and adds earlier nodes to Join. If
// StartGroup returns an error, no node is running.
func StartGroup(ctx context.Context, network Network, n int, base NodeConfig) ([]*Node, error) {
	var group []*Node
	for i := range n {
		c := base
		c.Number = i + 1
		for k := range min(i, 2) { // join up to two earlier nodes, spread over the group
			c.Join = append(slices.Clone(c.Join), group[(i*7+k*3)%i].Addr())
		}
		node, err := Start(network, c)
		if err != nil {
			return nil, errors.Join(err, StopAll(group))
		}
		group = append(group, node)
	}
	if err := awaitMembers(ctx, group, n); err != nil {
		return nil, errors.Join(err, StopAll(group))
	}
	return group, nil
}

// awaitMembers waits until each node in the group lists exactly want members.
func awaitMembers(ctx context.Context, group []*Node, want int) error {
	for _, n := range group {
		for {
			have := len(n.Members.Members())
			if have == want {
				break
			}
			select {
			case <-time.After(20 * time.Millisecond): // poll, because a large group changes often while it starts
			case <-ctx.Done():
				return fmt.Errorf("%s lists %d members, want %d: %w", n.ID, have, want, ctx.Err())
			}
		}
	}
	return nil
}

// StopAll stops all nodes in the group concurrently and returns their errors.
func StopAll(group []*Node) error {
	errs := make([]error, len(group))
	var wg sync.WaitGroup
	for i, n := range group {
		wg.Go(func() { errs[i] = n.Stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Differences describes the first difference between the nodes' views that it finds. It compares
// all heads, including their hashes, and each table's checksum. It returns "" if the views are
// equal.
func Differences(group []*Node) string {
	first := group[0]
	want, tables := first.View.Digest(), first.View.Health().Tables
	for _, n := range group[1:] {
		got := n.View.Digest()
		if d := headsDiffer(want.Heads, got.Heads); d != "" {
			return fmt.Sprintf("%s and %s: %s", first.ID, n.ID, d)
		}
		if want.Shared != got.Shared {
			return fmt.Sprintf("%s and %s: shared rows: %x, %x", first.ID, n.ID, want.Shared, got.Shared)
		}
		if other := n.View.Health().Tables; !slices.Equal(tables, other) {
			return fmt.Sprintf("%s and %s: tables: %v, %v", first.ID, n.ID, tables, other)
		}
	}
	return ""
}

func headsDiffer(a, b []view.Head) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d and %d streams: %v, %v", len(a), len(b), a, b)
	}
	for i := range a {
		if a[i].Position != b[i].Position || a[i].Hash != b[i].Hash {
			return fmt.Sprintf("%v, %v", a[i], b[i])
		}
	}
	return ""
}

// AwaitEqual waits until the views of all nodes in the group are equal.
func AwaitEqual(ctx context.Context, group []*Node) error {
	for {
		d := Differences(group)
		if d == "" {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond): // any of the views may change
		case <-ctx.Done():
			return fmt.Errorf("the views are not equal: %s: %w", d, ctx.Err())
		}
	}
}
