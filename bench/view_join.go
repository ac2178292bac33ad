package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// benchJoin: from the start of a newcomer with an empty file until it has the
// hundred thousand machines of its only peer, over loopback.
func benchJoin(ctx context.Context, lab *Lab, out Figures) (err error) {
	net := newWire()
	defer net.Close()
	peer, err := gossiptest.Start(net, gossiptest.NodeConfig{Number: 1, Cluster: "bench", Path: filepath.Join(lab.dir, "peer.db")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, peer.Stop()) }()
	if err := fillFleet(ctx, peer.View); err != nil {
		return err
	}
	before := net.http.Load()
	begin := time.Now()
	newcomer, err := gossiptest.Start(net, gossiptest.NodeConfig{Number: 2, Cluster: "bench", Path: filepath.Join(lab.dir, "newcomer.db"), Join: []string{peer.Addr()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, newcomer.Stop()) }()
	if err := until(ctx, time.Minute, "the newcomer has all", func() bool {
		return gossiptest.Differences([]*gossiptest.Node{peer, newcomer}) == ""
	}); err != nil {
		return err
	}
	out["view_join_s"] = time.Since(begin).Seconds()
	out["view_join_mib"] = float64(net.http.Load()-before) / (1 << 20)
	rows := 0
	for _, t := range newcomer.View.Health().Tables {
		rows += t.Rows
	}
	if rows < fleetMachines {
		return fmt.Errorf("the newcomer has %d rows", rows)
	}
	return nil
}
