package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// measureOthers measures what the number of other members costs, in a view that
// knows ten thousand.
func (c *memberCost) measureOthers(ctx context.Context, lab *Lab) (err error) {
	const members, rounds = 10_000, 20
	v, err := view.Open(view.Config{Path: filepath.Join(lab.dir, "tiers.db"), Cluster: "bench", Site: "bench"})
	if err != nil {
		return err
	}
	stop := runView(ctx, v)
	defer func() { err = errors.Join(err, stop()) }()
	all := make([][]byte, members)
	for n := range all {
		if all[n], err = firstOf(n); err != nil {
			return err
		}
	}
	if err := applyAll(ctx, v, all[1:]); err != nil {
		return err
	}
	before := processorTime()
	for range rounds {
		if d := v.Digest(); len(d.Heads) < members-1 {
			return fmt.Errorf("%d heads", len(d.Heads))
		}
	}
	c.headTime = us(processorTime()-before) / (members * rounds)
	// Presences go into the file with the next commit: the last transaction
	// makes one and waits for it.
	before = processorTime()
	for n := range members {
		v.SetPresence(fleetStream(n).Site, true, time.Now())
	}
	if err := applyAll(ctx, v, all[:1]); err != nil {
		return err
	}
	c.presenceTime = us(processorTime()-before) / members
	return nil
}

// firstOf is the first transaction of a worker: what it says of itself.
func firstOf(n int) ([]byte, error) {
	s := fleetStream(n)
	return wire.Encode(&wire.Transaction{
		Position: wire.Position{Stream: s, Seq: 1}, At: time.Now().UnixNano(),
		Rows: []wire.Row{inventory.WorkerRow(&bourse.Facts{Worker: s.Site, Region: "gru", Tag: bourse.WorkerTag(n + 1)}, false)},
	}, fleetSeal())
}
