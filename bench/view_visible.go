package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// What members change while they are measured, whatever their number.
const (
	changesSecond = 10                 // of two processors, a hundred members of one process use a third for that
	changesEach   = 20 * changesSecond // of each group; twice as many of the largest
)

// groups are the sizes that are compared; the largest is also the one whose
// times count.
var groups = []int{10, 50, 100}

// benchVisible: machines start and stop on random members, ten times a
// second altogether, until each change is in the views of all members, which
// run in this process and talk over sockets of loopback. Beside that, what a
// change costs each member: bytes of all messages about the view, rumours and
// anti-entropy, and processor time.
func benchVisible(ctx context.Context, _ *Lab, out Figures) error {
	for _, n := range groups {
		if err := benchGroup(ctx, n, out); err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
	}
	name := func(n int) string { return fmt.Sprintf("view_bytes_per_change_member_%d", n) }
	out["view_bytes_ratio"] = out[name(groups[len(groups)-1])] / out[name(groups[0])]
	return nil
}

func benchGroup(ctx context.Context, n int, out Figures) (err error) {
	// A hundred members on few processors: to collect their garbage less often
	// leaves more room before they stand in one another's way.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	net := newWire()
	defer net.Close()
	group, err := gossiptest.StartGroup(ctx, net, n, gossiptest.NodeConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, gossiptest.StopAll(group)) }()
	// The first change of a member says all of a machine, later ones what a
	// start or a stop changes. After that the noise of joining is over, too.
	for _, node := range group {
		if _, err := node.View.Publish(ctx, groupRow(node, -1)); err != nil {
			return err
		}
		breathe(ctx)
	}
	if err := gossiptest.AwaitEqual(ctx, group); err != nil {
		return err
	}
	quiet, err := net.calm(ctx, n)
	if err != nil {
		return err
	}
	var m gossiptest.Measured
	load := gossiptest.Load{Changes: changesEach, Every: time.Second / changesSecond, Dice: rand.New(rand.NewPCG(uint64(n), 1)), Row: groupRow}
	if n == groups[len(groups)-1] {
		load.Changes *= 2
	}
	busy, err := net.spend(func() (err error) { m, err = gossiptest.Measure(ctx, group, load); return err })
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, m)
	out["view_unseen"] += float64(m.Unseen)
	put := func(name string, value float64) { out[fmt.Sprintf("%s_%d", name, n)] = value }
	put("view_bytes_per_change_member", m.Bytes())
	put("view_wire_bytes_s_member", busy.bytes()/busy.took.Seconds()/float64(n))
	put("view_quiet_bytes_s_member", quiet.bytes()/quiet.took.Seconds()/float64(n))
	put("view_cpu_us_per_change_member", us(busy.cpu-time.Duration(float64(quiet.cpu)*busy.took.Seconds()/quiet.took.Seconds()))/float64(m.Changes*n))
	put("view_quiet_cpu_us_s_member", us(quiet.cpu)/quiet.took.Seconds()/float64(n))
	out["view_p50_ms"], out["view_p99_ms"] = ms(m.P50), ms(m.P99) // of the largest group, the last one
	return nil
}

// groupRow is a member's machine after its nth change.
func groupRow(n *gossiptest.Node, nth int) wire.Row {
	m := fleetMachine(n.Number, nth+1)
	m.Worker = n.ID
	return inventory.MachineRow(m)
}

// spending is what some time cost all members together.
type spending struct {
	packets, streams, http uint64 // bytes
	cpu, took              time.Duration
}

func (s spending) bytes() float64 { return float64(s.packets + s.streams + s.http) }

// spend measures what the members spend while do runs.
func (w *countedWire) spend(do func() error) (spending, error) {
	packets, streams, http, cpu, begin := w.packets.Load(), w.streams.Load(), w.http.Load(), processorTime(), time.Now()
	err := do()
	return spending{
		w.packets.Load() - packets, w.streams.Load() - streams, w.http.Load() - http, processorTime() - cpu, time.Since(begin),
	}, err
}

// calm waits until the noise of joining is over, and measures what a few
// seconds without changes cost.
func (w *countedWire) calm(ctx context.Context, members int) (spending, error) {
	const quiet = 4000 // bytes a second and member: probes, now and then a comparison, and an exchange of who the members are
	if err := until(ctx, 30*time.Second, "the members are calm", func() bool {
		second, err := w.spend(func() error { return rest(ctx, time.Second) })
		return err == nil && second.bytes() < quiet*float64(members)
	}); err != nil {
		return spending{}, err
	}
	return w.spend(func() error { return rest(ctx, 4*time.Second) })
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// processorTime is what this process has taken so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // cannot be
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
