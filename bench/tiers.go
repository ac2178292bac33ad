package main

import (
	"context"
	"fmt"
	"math"
	"os"
)

// memberCost is what the view costs one member, measured in this run. Times
// are microseconds of processor time.
type memberCost struct {
	changeTime, changeBytes float64 // for each change in the cluster
	quietTime, quietBytes   float64 // a second, in the largest group measured
	presenceTime            float64 // to note that another member is there, each presenceEvery
	headTime                float64 // to list one stream's head in a comparison
	machineBytes            float64 // in the file
	joinRows                float64 // that a newcomer takes in, a second
}

// What package gossip does in relation to the number of members. The bytes and
// the time of a member's state are those seen in packets and profiles.
const (
	presenceEvery = 5     // seconds
	stateBytes    = 170   // in an exchange of all members
	stateTime     = 6     // to read it
	compareSlow   = 2     // seconds between comparisons in quiet times …
	compareMore   = 0.010 // … and so much more for each member
)

// exchangeEvery is how often memberlist compares all members with another one,
// in seconds.
func exchangeEvery(members float64) float64 {
	return 5 * (1 + math.Max(0, math.Ceil(math.Log2(members/32))))
}

// quiet is what a member spends a second when nothing changes: microseconds
// and bytes.
func (c memberCost) quiet(members float64) (time, bytes float64) {
	exchanges := 2 * members / exchangeEvery(members) // states read or sent: its own exchange, and another's
	comparisons := 2 / (compareSlow + compareMore*members)
	return c.quietTime + members*c.presenceTime/presenceEvery + members*c.headTime*comparisons + exchanges*stateTime,
		c.quietBytes + exchanges*stateBytes
}

// memberShare is how much of a host the view may take.
type memberShare struct{ time, bytes, file, join float64 }

// share is that of a small host: a tenth of a core, 8 Mbit/s, 2 GiB of disk,
// and a minute until a newcomer knows all.
var share = memberShare{time: 100_000, bytes: 1e6, file: 2 << 30, join: 60}

// changes returns how many changes a second the whole cluster may make until a
// member's share is used up, and of what.
func (c memberCost) changes(members float64, s memberShare) (rate float64, of string) {
	time, bytes := c.quiet(members)
	byTime, byBytes := (s.time-time)/c.changeTime, (s.bytes-bytes)/c.changeBytes
	if byTime < byBytes {
		return max(0, byTime), "processor"
	}
	return max(0, byBytes), "network"
}

// machines returns how many machines there may be.
func (c memberCost) machines(s memberShare) float64 {
	return min(s.file/c.machineBytes, s.join*c.joinRows)
}

// members returns how many members there may be when each makes so many changes a
// second.
func (c memberCost) members(each float64, s memberShare) float64 {
	low, high := 1.0, 1e6
	for high-low > 1 {
		n := math.Floor((low + high) / 2)
		if rate, _ := c.changes(n, s); n*each <= rate {
			low = n
		} else {
			high = n
		}
	}
	return low
}

// benchTiers: up to which size one tier will do, from what the benchmarks of
// the view have measured before it. A model: no one has ten thousand hosts for
// a benchmark.
func benchTiers(ctx context.Context, lab *Lab, out Figures) error {
	last := groups[len(groups)-1]
	of := func(name string) float64 { return out[fmt.Sprintf("%s_%d", name, last)] }
	cost := memberCost{
		changeTime: of("view_cpu_us_per_change_member"), changeBytes: of("view_bytes_per_change_member"),
		quietTime: of("view_quiet_cpu_us_s_member"), quietBytes: of("view_quiet_bytes_s_member"),
		machineBytes: out["view_file_bytes_per_machine"], joinRows: fleetMachines / out["view_join_s"],
	}
	if cost.changeTime == 0 || cost.machineBytes == 0 || math.IsInf(cost.joinRows, 0) {
		return fmt.Errorf("it needs the figures of visible, query and join: run them as well")
	}
	if err := cost.measureOthers(ctx, lab); err != nil {
		return err
	}
	out["tier_presence_us"], out["tier_head_us"] = cost.presenceTime, cost.headTime
	for _, n := range []float64{100, 1000, 3000, 10_000, 30_000} {
		rate, limit := cost.changes(n, share)
		time, bytes := cost.quiet(n)
		fmt.Fprintf(os.Stderr, "one tier, %6.0f members: %4.0f changes/s (%s); quiet: %5.2f %% of a core, %6.1f kB/s\n",
			n, rate, limit, time/1e4, bytes/1e3)
		if n == 1000 {
			out["tier_changes_s_1000"] = rate
		}
	}
	for _, each := range []float64{0.01, 0.1, 1} {
		out[fmt.Sprintf("tier_members_at_%g_changes_s", each)] = cost.members(each, share)
	}
	out["tier_machines"] = cost.machines(share)
	return nil
}
