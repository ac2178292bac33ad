package gossip_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// stranger is a delegate that announces arbitrary metadata.
type stranger struct{ meta []byte }

func (s stranger) NodeMeta(int) []byte              { return s.meta }
func (stranger) NotifyMsg([]byte)                   {}
func (stranger) GetBroadcasts(int, int) [][]byte    { return nil }
func (stranger) LocalState(bool) []byte             { return nil }
func (stranger) MergeRemoteState([]byte, bool)      {}
func (stranger) NotifyAlive(*memberlist.Node) error { return nil }

// intrude joins a member with arbitrary metadata to a group, at an address of the in-memory
// network.
func intrude(t *testing.T, net *gossiptest.Memory, address int, name string, meta []byte, join string) {
	t.Helper()
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.Transport, c.Delegate, c.LogOutput = name, "bourse/bourse", net.End(address), stranger{meta}, io.Discard
	c.SecretKey, c.EnableCompression = gossip.PublicKey(), false
	list, err := memberlist.Create(c)
	if err != nil {
		t.Fatalf("%q: %v", name, err)
	}
	t.Cleanup(func() { _ = list.Shutdown() })
	if _, err := list.Join([]string{join}); err != nil {
		t.Fatalf("%q: join: %v", name, err)
	}
}

// TestStrangers joins members with invalid metadata to a group. They must not be listed, each
// must be logged once, and the group must continue to work.
func TestStrangers(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		const boot = "01JZZZZZZZZZZZZZZZZZZZZZZZ"
		var log gossiptest.Log
		net, lost := gossiptest.NewMemory(1), new(losses)
		first := joinVirtual(t, net, 1, gossip.Config{Self: worker(1), OnLost: lost.add, Log: slog.New(slog.NewTextHandler(&log, nil))})
		second := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), OnLost: lost.add, Join: []string{first.Addr()}})
		untilCount(t, []running{first, second}, 2)

		strangers := map[string][]byte{
			"evil-1@" + boot:                nil,
			"evil-2@" + boot:                bytes.Repeat([]byte{0xff}, 512),
			"evil-3":                        []byte("hello"),
			"../../etc/passwd@" + boot:      {1, 0, 6, 'b', 'o', 'u', 'r', 's', 'e'},
			"evil-4\n\x1b[31m@" + boot:      {9},
			strings.Repeat("x", 3000) + "@": {1},
		}
		address := 100
		for name, meta := range strangers {
			address++
			intrude(t, net, address, name, meta, first.Addr())
		}
		time.Sleep(30 * time.Second)
		untilCount(t, []running{first, second}, 2)
		if got := log.Lines("member ignored"); got != len(strangers) {
			t.Errorf("%d log lines for %d strangers", got, len(strangers))
		}
		third := joinVirtual(t, net, 3, gossip.Config{Self: worker(3), OnLost: lost.add, Join: []string{second.Addr()}})
		untilCount(t, []running{first, second, third}, 3)
		if got := lost.list(); len(got) != 0 {
			t.Errorf("reported losses: %v, want none", got)
		}
	})
}

// TestGarbage sends random bytes to a member's sockets, and checks that the member continues to
// work.
func TestGarbage(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		m := joinVirtual(t, net, 1, gossip.Config{Self: worker(1)})
		noise := net.End(66)
		garbage := [][]byte{nil, {0}, {1, 2, 3}, bytes.Repeat([]byte{0xff}, 1400), bytes.Repeat([]byte{7}, 60_000), append([]byte{244, 13}, "bourse/bourse"...)}
		for kind := range 255 {
			garbage = append(garbage, append([]byte("\xf4\x0dbourse/bourse"), byte(kind), 0x81, 0xa4, 'N', 'o', 'd', 'e', 0xc0))
		}
		for _, g := range garbage {
			_, _ = noise.WriteTo(g, m.Addr())
			c, err := noise.DialTimeout(m.Addr(), time.Second)
			if err != nil {
				t.Fatalf("dial: %v", err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write(g)
			c.Close()
		}
		other := joinVirtual(t, net, 2, gossip.Config{Self: worker(2), Join: []string{m.Addr()}})
		untilCount(t, []running{m, other}, 2)
	})
}

// TestOtherClustersAreIgnored tries to join servers of another cluster, or with the wrong key,
// to a group.
func TestOtherClustersAreIgnored(t *testing.T) {
	key := bytes.Repeat([]byte{1}, 32)
	tests := []struct {
		name       string
		here, them gossip.Config
	}{
		{"another cluster", gossip.Config{}, gossip.Config{ClusterID: "other"}},
		{"no key", gossip.Config{Key: key}, gossip.Config{}},
		{"a key in a cluster without one", gossip.Config{}, gossip.Config{Key: key}},
		{"another key", gossip.Config{Key: key}, gossip.Config{Key: bytes.Repeat([]byte{2}, 32)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gossiptest.Virtual(t, func(t *testing.T) {
				net := gossiptest.NewMemory(1)
				tt.here.Self, tt.them.Self = worker(1), worker(2)
				here := joinVirtual(t, net, 1, tt.here)
				tt.them.Join = []string{here.Addr()}
				them := joinVirtual(t, net, 2, tt.them)
				<-them.Ready()
				time.Sleep(time.Minute)
				untilCount(t, []running{here, them}, 1)

				friend := tt.here
				friend.Self, friend.Join = worker(3), []string{here.Addr()}
				untilCount(t, []running{here, joinVirtual(t, net, 3, friend)}, 2)
			})
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	taken := startReal(t, gossip.Config{Self: worker(1)})
	good := gossip.Config{Self: worker(2), Bind: netip.MustParseAddrPort("127.0.0.1:0")}
	tests := []struct {
		name   string
		change func(*gossip.Config)
		code   bourse.Code
	}{
		{"no id", func(c *gossip.Config) { c.Self.ID = "" }, bourse.CodeInvalid},
		{"no API", func(c *gossip.Config) { c.Self.Address = "" }, bourse.CodeInvalid},
		{"a worker without a region", func(c *gossip.Config) { c.Self.Region = "" }, bourse.CodeInvalid},
		{"a cluster id with a space", func(c *gossip.Config) { c.ClusterID = "a b" }, bourse.CodeInvalid},
		{"a short key", func(c *gossip.Config) { c.Key = []byte("secret") }, bourse.CodeInvalid},
		{"no address", func(c *gossip.Config) { c.Bind = netip.AddrPort{} }, bourse.CodeInvalid},
		{"joining nonsense", func(c *gossip.Config) { c.Join = []string{"nonsense"} }, bourse.CodeInvalid},
		{"an address that is taken", func(c *gossip.Config) { c.Bind = addrPort(t, taken.Addr()) }, bourse.CodeAlreadyExists},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := good
			tt.change(&c)
			m, err := gossip.Open(c)
			if bourse.CodeOf(err) != tt.code {
				t.Errorf("got %v, want code %s", err, tt.code)
			}
			if err == nil {
				m.Close()
			}
		})
	}
	m, err := gossip.Open(good)
	if err != nil {
		t.Fatalf("the valid configuration: %v", err)
	}
	if a := addrPort(t, m.Addr()); a.Port() == 0 || !a.Addr().IsLoopback() {
		t.Errorf("the server gossips on %s", a)
	}
	if err := m.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// TestReadersDoNotShare overwrites the returned lists while the group changes.
func TestReadersDoNotShare(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net := gossiptest.NewMemory(1)
		group := startVirtual(t, net, 3, new(losses))
		untilCount(t, group, 3)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 200 {
					for _, list := range [][]bourse.Member{group[0].Members.Members(), group[0].Workers(), group[0].Candidates("gru")} {
						clear(list) // the caller owns the slice
					}
					clear(group[0].Regions())
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		for i := range 200 {
			group[1].SetLeaving(i%2 == 0)
			time.Sleep(10 * time.Millisecond)
		}
		group[2].stop()
		wg.Wait()
		untilCount(t, group[:2], 2)
		for _, id := range []bourse.WorkerID{"w1", "w2"} {
			if w, ok := group[0].Worker(id); !ok || w.ID != id {
				t.Errorf("%s is %+v", id, w)
			}
		}
	})
}
