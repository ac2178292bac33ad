package gossip_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testTimeout limits how long a test waits for anything.
const testTimeout = time.Minute

func worker(i int) bourse.Member {
	return bourse.Member{
		ID: bourse.WorkerID(fmt.Sprintf("w%d", i)), Role: bourse.RoleWorker, Region: "gru",
		Address: fmt.Sprintf("127.0.0.1:%d", 4000+i), Tag: bourse.WorkerTag(i),
	}
}

// running is a member that runs until it is stopped or killed, or the test ends.
type running struct {
	*gossip.Members
	stop  func()          // cancels Run's context and waits until Run has returned
	kill  func()          // stops the transport permanently, as SIGKILL would
	err   func() error    // waits until Run has returned, and returns its error
	ended <-chan struct{} // closed when Run has returned
}

// start opens and runs a member; kill stops the member's transport.
func start(t testing.TB, c gossip.Config, kill func()) running {
	t.Helper()
	m, err := gossip.Open(c)
	if err != nil {
		t.Fatalf("open %s: %v", c.Self.ID, err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	var ended error
	go func() {
		defer close(done)
		ended = m.Run(ctx)
	}()
	r := running{
		Members: m, kill: kill,
		stop:  func() { cancel(); <-done },
		err:   func() error { <-done; return ended },
		ended: done,
	}
	t.Cleanup(r.stop)
	return r
}

// startReal runs a member on loopback sockets.
func startReal(t testing.TB, c gossip.Config) running {
	t.Helper()
	port := int(c.Bind.Port())
	tr, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{
		BindAddrs: []string{"127.0.0.1"}, BindPort: port, Logger: log.New(io.Discard, "", 0),
	})
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	c.Transport = tr
	c.Advertise = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(tr.GetAutoBindPort()))
	return start(t, c, func() { _ = tr.Shutdown() })
}

// until waits until ok returns true, and checks it whenever the member's list changes.
func until(t testing.TB, m *gossip.Members, what string, ok func() bool) {
	t.Helper()
	timeout := time.NewTimer(testTimeout)
	defer timeout.Stop()
	for {
		changed := m.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // the free capacity in a list may be older than the last change
		case <-timeout.C:
			t.Fatalf("timed out waiting until %s; the list is %+v", what, m.Members())
		}
	}
}

func untilCount(t testing.TB, group []running, want int) {
	t.Helper()
	for _, m := range group {
		until(t, m.Members, fmt.Sprint("it has ", want, " members"), func() bool { return len(m.Members.Members()) == want })
	}
}

// cluster runs n workers on loopback, and waits until all of them know one another.
func cluster(t testing.TB, n int) []running {
	t.Helper()
	var group []running
	for i := range n {
		group = append(group, startReal(t, gossip.Config{Self: worker(i + 1), Join: joinOf(group)}))
	}
	untilCount(t, group, n)
	return group
}

func joinOf(group []running) []string {
	if len(group) == 0 {
		return nil
	}
	return []string{group[0].Addr()}
}

// losses records the members that OnLost reports.
type losses struct {
	mu  sync.Mutex
	ids []bourse.WorkerID
}

func (l *losses) add(m bourse.Member, _ time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, m.ID)
}

func (l *losses) list() []bourse.WorkerID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]bourse.WorkerID(nil), l.ids...)
}

func addrPort(t testing.TB, s string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
