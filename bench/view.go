package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"time"

	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// benchVisible measures the time until a change appears in the views of all 100 members.
// All members run in this process and share its few processors, so only ten machines per
// second are started or stopped in total.
func benchVisible(ctx context.Context, _ *Lab, out Figures) (err error) {
	const members, changes, every = 100, 400, 100 * time.Millisecond
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // this process contains the heaps of a hundred members
	network := gossiptest.NewLoopback()
	defer network.Close()
	group, err := gossiptest.StartGroup(ctx, network, members, gossiptest.NodeConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gossiptest.StopAll(group)) }()
	time.Sleep(10 * time.Second) // wait until the members have finished comparing their membership
	m, err := gossiptest.Measure(ctx, group, gossiptest.Load{Changes: changes, Every: every, Dice: rand.New(rand.NewPCG(members, 1))})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, m)
	out["view_p50_ms"], out["view_p99_ms"], out["view_unseen"] = ms(m.P50), ms(m.P99), float64(m.Unseen)
	return nil
}
