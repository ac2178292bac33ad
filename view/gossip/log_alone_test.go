package gossip_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// startLogged runs a member on loopback and returns its log, too.
func startLogged(t *testing.T, c gossip.Config) (running, *gossiptest.Log) {
	t.Helper()
	log := new(gossiptest.Log)
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	return startReal(t, c), log
}

// TestInNoCluster checks that a server that cannot join a cluster logs a warning with the
// reason.
func TestInNoCluster(t *testing.T) {
	t.Parallel()
	key, other := []byte(strings.Repeat("k", 32)), []byte(strings.Repeat("o", 32))
	group := startReal(t, gossip.Config{Self: worker(1), Key: key})
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	for name, tt := range map[string]struct {
		config gossip.Config
		why    string
	}{
		"another key":     {gossip.Config{Key: other, Join: []string{group.Addr()}}, group.Addr() + ": it closes the connection: its gossip key or --cluster is different"},
		"no key":          {gossip.Config{Join: []string{group.Addr()}}, "its gossip key or --cluster is different"},
		"another cluster": {gossip.Config{Key: key, ClusterID: "other", Join: []string{group.Addr()}}, "its gossip key or --cluster is different"},
		"a dead address":  {gossip.Config{Key: key, Join: []string{dead.Addr().String()}}, dead.Addr().String() + ": connection refused"},
		"no such host":    {gossip.Config{Key: key, Join: []string{"nobody.invalid:7946"}}, "nobody.invalid:7946: no such host"},
		"no join":         {gossip.Config{Key: key}, "no --join is set, and no other server has joined this one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.config.Self = worker(2)
			tt.config.Timing.Rejoin = time.Second
			_, log := startLogged(t, tt.config)
			if !log.Await(testTimeout, "level=WARN msg=\"not in a cluster, no other server found\"") || log.Lines(tt.why) == 0 {
				t.Errorf("the log has no warning with %q:\n%s", tt.why, log)
			}
		})
	}
}

// TestForgottenGossipAddress checks that a server that others cannot reach, because it gossips on loopback, does not
// call them. Otherwise, it would repeatedly appear in their lists for a few seconds.
func TestForgottenGossipAddress(t *testing.T) {
	t.Parallel()
	log := new(gossiptest.Log)
	start(t, gossip.Config{
		Self: worker(1), Bind: addrPort(t, "127.0.0.1:0"), Join: []string{"192.0.2.1:7946"}, Log: slog.New(slog.NewTextHandler(log, nil)),
	}, nil)
	if !log.Await(testTimeout, "192.0.2.1:7946: this server gossips at 127.0.0.1:") || log.Lines("which other hosts cannot reach: set --gossip to an address of this host") == 0 {
		t.Errorf("the warning was not logged:\n%s", log)
	}
}

// TestNotInAClusterWarningBacksOff checks that the intervals between warnings grow to minutes,
// and that the warnings stop when the server joins a cluster.
func TestNotInAClusterWarningBacksOff(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		const line = "not in a cluster"
		net, log := gossiptest.NewMemory(1), new(gossiptest.Log)
		silent := net.End(9)
		first := joinVirtual(t, net, 1, gossip.Config{Self: worker(1), Join: []string{silent.Addr()}, Log: slog.New(slog.NewTextHandler(log, nil))})
		time.Sleep(time.Minute)
		if n := log.Lines(line); n < 2 || n > 4 {
			t.Errorf("%d lines in the first minute, want a few:\n%s", n, log)
		}
		time.Sleep(time.Hour)
		if n := log.Lines(line); n < 10 || n > 20 {
			t.Errorf("%d lines in an hour, want one every few minutes", n)
		}
		second := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), Join: []string{first.Addr()}})
		untilCount(t, []running{first, second}, 2)
		n := log.Lines(line)
		time.Sleep(20 * time.Minute) // a server that is alone would log a warning every five minutes
		if log.Lines(line) != n {
			t.Errorf("a server in a cluster warns that it is alone:\n%s", log)
		}
		if n := log.Lines("call to configured member failed"); n != 1 {
			t.Errorf("%d lines about the address that does not answer, want 1:\n%s", n, log)
		}
		second.stop()
		time.Sleep(10 * time.Minute)
		if log.Lines(line) <= n {
			t.Errorf("no warning from a server that has lost its cluster:\n%s", log)
		}
	})
}

// TestFindIsCalledAgainSoon checks that a server joins soon after Find returns its first
// member. Find returns none, for example, while NATS is not running.
func TestFindIsCalledAgainSoon(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		first := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		var up atomic.Bool
		second := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), Timing: gossip.Timing{Rejoin: time.Hour}, Find: func(context.Context) []string {
			if !up.Load() {
				return nil
			}
			return []string{first.Addr()}
		}})
		time.Sleep(time.Minute)
		up.Store(true)
		began := time.Now()
		untilCount(t, []running{first, second}, 2)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the server joined after %s, want at most 10 s", took)
		}
	})
}

// TestNoWarningAboutAMemberThatLeft checks that no warning is logged about a configured member
// that has left the cluster.
func TestNoWarningAboutAMemberThatLeft(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		net, log := gossiptest.NewMemory(1), new(gossiptest.Log)
		leaves := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		stays := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), Join: []string{leaves.Addr()}, Log: slog.New(slog.NewTextHandler(log, nil))})
		third := joinVirtual(t, net, 3, gossip.Config{Self: worker(3), Join: []string{leaves.Addr()}})
		untilCount(t, []running{stays, third}, 3)
		leaves.stop()
		untilCount(t, []running{stays, third}, 2)
		time.Sleep(70 * time.Minute) // a member that has left is called for an hour
		if n := log.Lines("call to configured member failed"); n != 0 {
			t.Errorf("%d lines about a member that left:\n%s", n, log)
		}
	})
}
