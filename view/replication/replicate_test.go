package replication_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// startGroup runs nodes until the test ends.
func startGroup(t testing.TB, network gossiptest.Network, n int, base gossiptest.NodeConfig) []*gossiptest.Node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	group, err := gossiptest.StartGroup(ctx, network, n, base)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gossiptest.StopAll(group); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return group
}

func startNode(t testing.TB, network gossiptest.Network, c gossiptest.NodeConfig) *gossiptest.Node {
	t.Helper()
	n, err := gossiptest.Start(network, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Stop() }) // the node may have been killed
	return n
}

func publish(t testing.TB, n *gossiptest.Node, rows ...wire.Row) wire.Position {
	t.Helper()
	p, err := n.View.Publish(t.Context(), rows...)
	if err != nil {
		t.Fatalf("%s: publish: %v", n.ID, err)
	}
	return p
}

func untilEqual(t testing.TB, group []*gossiptest.Node, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	began := time.Now()
	if err := gossiptest.AwaitEqual(ctx, group); err != nil {
		t.Fatal(err)
	}
	t.Logf("equal after %.2f s", time.Since(began).Seconds())
}

func release(version int) wire.Row {
	return wire.Row{Table: wire.TableReleases, Key: fmt.Sprintf("web/%d", version), Columns: map[string]wire.Value{
		"app": "web", "version": int64(version), "status": "running",
	}}
}

func machineRow(n *gossiptest.Node, number int, state bourse.State) wire.Row {
	return inventory.MachineRow(&bourse.Machine{ID: machineID(n, number), App: "web", Worker: n.ID, Region: "gru", State: state})
}

func machineID(n *gossiptest.Node, number int) bourse.MachineID {
	return bourse.MachineID(fmt.Sprintf("%06x%08x", n.Number, number))
}

// changing returns the row of a machine in its nth state.
func changing(n *gossiptest.Node, nth int) wire.Row {
	return inventory.MachineRow(&bourse.Machine{
		ID: machineID(n, 1), App: "web", Worker: n.ID, Region: "gru", UpdatedAt: time.Unix(1_800_000_000+int64(nth), 0),
		State: []bourse.State{bourse.StateStarted, bourse.StateStopped}[nth%2],
	})
}

// TestSpreadsToAll measures, in virtual time, how long it takes until all members see a change,
// and how many bytes it costs each member. The number of bytes must not depend on the number of
// members.
func TestSpreadsToAll(t *testing.T) {
	t.Parallel()
	bytes := map[int]float64{}
	for _, n := range []int{10, manyViews / 2, manyViews} {
		t.Run(fmt.Sprint("members=", n), func(t *testing.T) {
			gossiptest.Virtual(t, func(t *testing.T) {
				group := startGroup(t, gossiptest.NewMemory(1), n, gossiptest.NodeConfig{})
				for _, n := range group { // so that changes have the same size in every group
					publish(t, n, changing(n, 0))
				}
				time.Sleep(5 * time.Second) // virtual time; until the members have finished joining
				m, err := gossiptest.Measure(t.Context(), group, gossiptest.Load{
					Changes: 100, Every: 20 * time.Millisecond,
					Row: func(n *gossiptest.Node, nth int) wire.Row { return changing(n, nth+1) },
				})
				if err != nil {
					t.Fatal(err)
				}
				if t.Log(m); m.Unseen > 0 || m.P99 > time.Second {
					t.Errorf("%d changes were not seen; the 99th percentile of the others is %s", m.Unseen, m.P99)
				}
				bytes[n] = m.Bytes()
			})
		})
	}
	if few, many := bytes[10], bytes[manyViews]; many > 1.25*few {
		t.Errorf("bytes per change and member: %.0f with 10 members, %.0f with %d", few, many, manyViews)
	}
}

// TestSpreadsOnALongAndLossyNetwork measures how long it takes until all members see a change,
// if packets are lost and delayed.
func TestSpreadsOnALongAndLossyNetwork(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		group := startGroup(t, net, manyViews, gossiptest.NodeConfig{})
		net.Lose(0.01)
		net.Delay(50*time.Millisecond, 20*time.Millisecond)
		time.Sleep(5 * time.Second) // virtual time
		m, err := gossiptest.Measure(t.Context(), group, gossiptest.Load{Changes: 100, Every: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if t.Log(m); m.Unseen > 0 || m.P99 > 5*time.Second {
			t.Errorf("%d changes were not seen; the 99th percentile of the others is %s", m.Unseen, m.P99)
		}
	})
}

// TestSpreadsOnLoopback checks that changes reach all members on real sockets. It does not
// measure the time, as the benchmark does.
func TestSpreadsOnLoopback(t *testing.T) {
	network := gossiptest.NewLoopback()
	t.Cleanup(network.Close)
	group := startGroup(t, network, 10, gossiptest.NodeConfig{})
	m, err := gossiptest.Measure(t.Context(), group, gossiptest.Load{Changes: 50, Every: 20 * time.Millisecond, Settle: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if t.Log(m); m.Unseen > 0 {
		t.Errorf("%d changes were not seen", m.Unseen)
	}
}

// TestLargeChange checks that all members pull a transaction that is too large for a packet.
func TestLargeChange(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startGroup(t, gossiptest.NewMemory(1), 8, gossiptest.NodeConfig{})
		row := machineRow(group[0], 1, bourse.StateStarted)
		row.Columns["config"] = `{"env":{"A":"` + strings.Repeat("x", 200_000) + `"}}`
		publish(t, group[0], row)
		untilEqual(t, group, 5*time.Second)
		for _, n := range group {
			if tr := n.Replicator.Traffic(); tr.RumorBytesOut > 20_000 {
				t.Errorf("%s sent %d bytes of rumors", n.ID, tr.RumorBytesOut)
			}
		}
	})
}

// TestBurst publishes more changes at once than packets can carry.
func TestBurst(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startGroup(t, gossiptest.NewMemory(1), 4, gossiptest.NodeConfig{})
		for i := range 1000 {
			publish(t, group[i%2], machineRow(group[i%2], i, bourse.StateStarted))
		}
		untilEqual(t, group, 20*time.Second)
		if tr := group[0].Replicator.Traffic(); tr.Queue.Demoted == 0 {
			t.Error("no rumor was shortened, so the burst was too small")
		}
	})
}

// TestPartition partitions a group for five minutes, during which both sides
// write.
func TestPartition(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		group := startGroup(t, net, 6, gossiptest.NodeConfig{})
		publish(t, group[0], release(1))
		untilEqual(t, group, time.Minute)
		net.Partition(func(from, to int) bool { return (from <= 3) != (to <= 3) })
		for i := range 75 {
			n := group[i%6]
			publish(t, n, machineRow(n, i, bourse.StateStarted), release(i%7))
			time.Sleep(4 * time.Second) // virtual time
		}
		untilEqual(t, group[:3], 10*time.Second)
		untilEqual(t, group[3:], 10*time.Second)
		if gossiptest.Differences(group) == "" {
			t.Fatal("the halves are equal, so they were not partitioned")
		}
		net.Partition(nil)
		untilEqual(t, group, time.Minute)
	})
}

// TestNewcomerGetsSnapshots joins a member to a group that has restarted. The group's members no
// longer have individual transactions, so the new member must get snapshots.
func TestNewcomerGetsSnapshots(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, dir := gossiptest.NewMemory(1), t.TempDir()
		at := func(i int, join ...string) gossiptest.NodeConfig {
			return gossiptest.NodeConfig{Number: i, Path: filepath.Join(dir, fmt.Sprint("view-", i)), Join: join}
		}
		old := startNode(t, net, at(1))
		for i := range 50 {
			publish(t, old, machineRow(old, i, bourse.StateStarted), release(i))
		}
		if err := old.Stop(); err != nil {
			t.Fatal(err)
		}
		first := startNode(t, net, at(1))
		newcomer := startNode(t, net, at(2, first.Addr()))
		select {
		case <-newcomer.Replicator.Synced():
		case <-time.After(time.Minute):
			t.Fatal("the new member never became synced")
		}
		if d := gossiptest.Differences([]*gossiptest.Node{first, newcomer}); d != "" {
			t.Errorf("the new member was synced too early: %s", d)
		}
		if tr := newcomer.Replicator.Traffic(); tr.Snapshots == 0 {
			t.Errorf("no snapshot was sent: %+v", tr)
		}
	})
}

// TestOldFileComesBack replaces a member's file with an older copy, as a restored backup would.
// The member must begin a new epoch, and the others must remove the rows that it does not
// publish again.
func TestOldFileComesBack(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, path := gossiptest.NewMemory(1), filepath.Join(t.TempDir(), "view")
		other := startNode(t, net, gossiptest.NodeConfig{Number: 1})
		run := func() *gossiptest.Node {
			return startNode(t, net, gossiptest.NodeConfig{Number: 2, Path: path, Join: []string{other.Addr()}})
		}
		n := run()
		publish(t, n, machineRow(n, 1, bourse.StateStarted))
		stop(t, n)
		backup := read(t, path)
		n = run()
		for i := range 5 {
			publish(t, n, machineRow(n, 2+i, bourse.StateStarted), release(i))
		}
		untilEqual(t, []*gossiptest.Node{other, n}, time.Minute)
		before := n.View.Self()
		stop(t, n)

		if err := os.WriteFile(path, backup, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(path + "-wal") // empty, because the view was closed
		n = run()
		lost := n.View.RowsLost()
		if n.View.Self().Seq >= before.Seq {
			t.Fatalf("the old file contains %v", n.View.Self())
		}
		if n.View.Self().Epoch <= before.Epoch { // otherwise, the new epoch began before RowsLost was called
			select {
			case <-lost:
			case <-time.After(time.Minute):
				t.Fatal("the member never noticed that the others have newer transactions")
			}
		}
		if self := n.View.Self(); self.Epoch <= before.Epoch {
			t.Errorf("the member's epoch is %d, previously %d", self.Epoch, before.Epoch)
		}
		if _, err := n.View.Republish(t.Context(), []string{wire.TableMachines}, []wire.Row{machineRow(n, 1, bourse.StateStopped)}); err != nil {
			t.Fatal(err)
		}
		untilEqual(t, []*gossiptest.Node{other, n}, time.Minute)
		if list, err := view.Query(t.Context(), other.View, inventory.Machines(inventory.Filter{})); err != nil || len(list) != 1 || list[0].State != bourse.StateStopped {
			t.Errorf("the other member has %v (%v)", list, err)
		}
	})
}

// TestRestoredHost restores a broker and a worker from backups, in a cluster with certificates. The only member with
// newer rows can provide them only as snapshots. A worker's snapshots of other members' streams are not trusted. All
// members must nevertheless receive the shared rows and agree, because the broker has begun a new epoch.
func TestRestoredHost(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, dir := gossiptest.NewMemory(1), t.TempDir()
		keys := map[int]wire.Keys{}
		at := func(number int, role bourse.Role, file string, join ...string) *gossiptest.Node {
			if keys[number] == nil {
				key, err := wire.NewKey(role)
				if err != nil {
					t.Fatal(err)
				}
				keys[number] = key
			}
			return startNode(t, net, gossiptest.NodeConfig{
				Number: number, Path: filepath.Join(dir, file), Keys: keys[number], Role: role, Certified: true, Join: join,
			})
		}
		broker := at(1, bourse.RoleBroker, "broker")
		neighbor := at(2, bourse.RoleWorker, "neighbor", broker.Addr())
		publish(t, broker, release(1))
		untilEqual(t, []*gossiptest.Node{broker, neighbor}, time.Minute)
		for _, name := range []string{"broker", "neighbor"} {
			if err := view.Backup(t.Context(), filepath.Join(dir, name), filepath.Join(dir, name+"-backup")); err != nil {
				t.Fatal(err)
			}
		}
		survivor := at(3, bourse.RoleWorker, "survivor", broker.Addr())
		for i := range 5 {
			publish(t, broker, release(2+i))
		}
		untilEqual(t, []*gossiptest.Node{broker, neighbor, survivor}, time.Minute)
		stop(t, survivor)
		stop(t, neighbor)
		stop(t, broker)

		broker = at(1, bourse.RoleBroker, "broker-backup")
		neighbor = at(2, bourse.RoleWorker, "neighbor-backup", broker.Addr())
		untilEqual(t, []*gossiptest.Node{broker, neighbor}, time.Minute)
		survivor = at(3, bourse.RoleWorker, "survivor", broker.Addr())
		untilEqual(t, []*gossiptest.Node{broker, neighbor, survivor}, time.Minute)
		for _, table := range broker.View.Health().Tables {
			if table.Table == wire.TableReleases && table.Rows != 6 {
				t.Errorf("the broker has %d releases, want 6", table.Rows)
			}
		}
	})
}

func stop(t *testing.T, n *gossiptest.Node) {
	t.Helper()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sealOf returns the seal that a node uses to sign.
func sealOf(n *gossiptest.Node) wire.SigningKey {
	birth, key := n.Keys.Own()
	return wire.SigningKey{Cluster: "bourse", Birth: birth, Key: key}
}

// TestRepairs makes one member apply a different transaction than the others at the same
// position, signed by the same site. The member must get the right rows from that site.
func TestRepairs(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startGroup(t, gossiptest.NewMemory(1), 4, gossiptest.NodeConfig{})
		owner, wronged := group[0], group[3]
		p := publish(t, owner, machineRow(owner, 1, bourse.StateStarted))
		untilEqual(t, group, time.Minute)
		p.Seq++
		forged, err := wire.Encode(&wire.Transaction{Position: p, At: time.Now().UnixNano(), Rows: []wire.Row{machineRow(owner, 2, bourse.StateFailed)}}, sealOf(owner))
		if err != nil {
			t.Fatal(err)
		}
		if v, err := wronged.View.Apply(forged); err != nil || v.Outcome != view.Queued {
			t.Fatalf("apply the forged transaction: %v, %v", v, err)
		}
		if err := wronged.View.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		publish(t, owner, machineRow(owner, 1, bourse.StateStopped))
		untilEqual(t, group, time.Minute)
		if list, err := view.Query(t.Context(), wronged.View, inventory.Machines(inventory.Filter{Worker: owner.ID})); err != nil || len(list) != 1 || list[0].State != bourse.StateStopped {
			t.Errorf("the member has %v (%v)", list, err)
		}
	})
}

// TestPresence checks that all members list a killed worker's machines as unreachable within 5
// s, and as reachable within 2 s after the worker returns.
func TestPresence(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		group := startGroup(t, net, 5, gossiptest.NodeConfig{})
		victim := group[4]
		publish(t, victim, machineRow(victim, 1, bourse.StateStarted))
		untilEqual(t, group, time.Minute)
		until := func(want machinesapi.HostStatus) time.Duration {
			began := time.Now()
			for _, n := range group[:4] {
				for {
					m, err := view.Query(t.Context(), n.View, inventory.Machine(machineID(victim, 1)))
					if err == nil && m != nil && m.HostStatus == want {
						break
					}
					if time.Since(began) > time.Minute {
						t.Fatalf("%s lists the machine as %+v (%v), want %s", n.ID, m, err, want)
					}
					time.Sleep(50 * time.Millisecond) // virtual time
				}
			}
			return time.Since(began)
		}
		until(machinesapi.HostOK)
		_ = victim.Kill() // ignore the errors of a node that loses its network
		if took := until(machinesapi.HostUnreachable); took > 5*time.Second {
			t.Errorf("the loss was noticed after %s", took)
		}
		time.Sleep(time.Minute)
		victim = startNode(t, net, gossiptest.NodeConfig{Number: 5, Join: []string{group[0].Addr()}})
		publish(t, victim, machineRow(victim, 1, bourse.StateStarted)) // the new file does not contain the old rows
		if took := until(machinesapi.HostOK); took > 2*time.Second {
			t.Errorf("the return was noticed after %s", took)
		}
	})
}
