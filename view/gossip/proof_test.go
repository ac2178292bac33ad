package gossip_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
)

// offices contains servers with certificates, by API address.
type offices struct {
	mu sync.Mutex
	at map[string]*office
}

// office is a server with a certificate. It implements gossip.Proofs.
type office struct {
	all *offices
	as  bourse.Member

	mu      sync.Mutex
	private ed25519.PrivateKey
	self    http.Handler // nil if the server does not answer
}

type publicKey ed25519.PublicKey

func (k publicKey) Verify(statement, signature []byte) bool {
	return ed25519.Verify(ed25519.PublicKey(k), statement, signature)
}
func (publicKey) HasTag(bourse.WorkerTag) bool { return false }

// open creates a server with a certificate, which answers at its API address.
func (o *offices) open(as bourse.Member) *office {
	c := &office{all: o, as: as}
	c.rekey()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at == nil {
		o.at = map[string]*office{}
	}
	o.at[as.Address] = c
	return c
}

func (c *office) rekey() {
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.private = key
}

func (c *office) key() ed25519.PrivateKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.private
}

func (c *office) Sign(statement []byte) ([]byte, error) { return ed25519.Sign(c.key(), statement), nil }

// reach simulates a connection with mutual TLS: it returns the server at m's address, or an
// error unless that server has m's id and role.
func (c *office) reach(m bourse.Member) (*office, error) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if other := c.all.at[m.Address]; other != nil && other.as.ID == m.ID && other.as.Role == m.Role {
		return other, nil
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "%s at %s does not prove its identity", m.ID, m.Address)
}

func (c *office) Key(_ context.Context, m bourse.Member) (gossip.Key, error) {
	other, err := c.reach(m)
	if err != nil {
		return nil, err
	}
	return publicKey(other.key().Public().(ed25519.PublicKey)), nil
}

func (c *office) Names(_ context.Context, m bourse.Member) ([]string, error) {
	other, err := c.reach(m)
	if err != nil {
		return nil, err
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	w := httptest.NewRecorder()
	if other.self == nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "no server answers")
	}
	other.self.ServeHTTP(w, httptest.NewRequest(http.MethodGet, gossip.PathSelf, nil))
	self, err := gossip.ReadSelf(w.Result())
	return self.Names, err
}

// certified returns a worker whose tag is derived from its id.
func certified(i int) bourse.Member {
	m := worker(i)
	m.Tag = m.ID.Tags()[0]
	return m
}

// joinCertified runs a worker with a certificate.
func joinCertified(t *testing.T, net *gossiptest.Memory, address int, o *offices, c gossip.Config) (running, *office) {
	t.Helper()
	office := o.open(c.Self)
	c.Proofs = office
	m := joinVirtual(t, net, address, c)
	office.mu.Lock()
	defer office.mu.Unlock()
	office.self = gossip.SelfHandler(m.Members)
	return m, office
}

// pretender signs with its own key, and accepts all other members.
type pretender struct{ private ed25519.PrivateKey }

func newPretender() pretender {
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	return pretender{key}
}

func (l pretender) Sign(statement []byte) ([]byte, error) {
	return ed25519.Sign(l.private, statement), nil
}

func (pretender) Key(context.Context, bourse.Member) (gossip.Key, error) {
	return anything{}, nil
}
func (pretender) Names(context.Context, bourse.Member) ([]string, error) { return nil, nil }

type anything struct{}

func (anything) Verify(_, _ []byte) bool      { return true }
func (anything) HasTag(bourse.WorkerTag) bool { return true }

func startCertified(t *testing.T, net *gossiptest.Memory, o *offices, n int) []running {
	t.Helper()
	var group []running
	for i := 1; i <= n; i++ {
		m, _ := joinCertified(t, net, i, o, gossip.Config{Self: certified(i), Join: joinOf(group)})
		group = append(group, m)
	}
	untilCount(t, group, n)
	return group
}

// unchanged waits a minute, and then checks that every worker is listed with its own tag and
// address.
func unchanged(t *testing.T, group []running) {
	t.Helper()
	time.Sleep(time.Minute)
	for _, m := range group {
		if got := m.Members.Members(); len(got) != len(group) {
			t.Errorf("the server lists %+v, want %d members", got, len(group))
		}
		for i := range group {
			want := certified(i + 1)
			if got, ok := m.ByTag(want.Tag); !ok || got.ID != want.ID || got.Address != want.Address {
				t.Errorf("calls for machines of %s go to %+v", want.ID, got)
			}
			if got, ok := m.Worker(want.ID); !ok || got.Address != want.Address || got.Leaving {
				t.Errorf("%s is listed as %+v", want.ID, got)
			}
		}
	}
}

// TestGossipKeyAloneDoesNotAdmit checks that a server with the gossip key but without a
// certificate for its name is not listed, and that its statements about others are ignored.
func TestGossipKeyAloneDoesNotAdmit(t *testing.T) {
	for name, proofs := range map[string]gossip.Proofs{"unsigned": nil, "signed with its own key": newPretender()} {
		t.Run(name, func(t *testing.T) {
			gossiptest.Virtual(t, func(t *testing.T) {
				net, o := gossiptest.NewMemory(1), new(offices)
				group := startCertified(t, net, o, 3)
				stranger, twin := certified(7), certified(2)
				stranger.Region, twin.Address, twin.Leaving = "mad", "127.0.0.1:6666", true
				for i, self := range []bourse.Member{stranger, twin} {
					joinVirtual(t, net, 20+i, gossip.Config{Self: self, Proofs: proofs, Join: joinOf(group)})
				}
				unchanged(t, group)
				if got := group[0].Regions(); len(got) != 1 {
					t.Errorf("regions %v, want only gru", got)
				}
			})
		})
	}
}

// TestATagBelongsToItsWorker checks that a worker that announces another worker's tag gets none of the other's calls,
// even if it has its own certificate and started first.
func TestATagBelongsToItsWorker(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, o := gossiptest.NewMemory(1), new(offices)
		thief := certified(9)
		thief.Tag = certified(1).Tag
		alone, _ := joinCertified(t, net, 9, o, gossip.Config{Self: thief}) // an older boot than those of the group
		time.Sleep(time.Second)
		group := startCertified(t, net, o, 3)
		call(t, net, 50, alone.Addr(), group[0].Addr())
		unchanged(t, group)
	})
}

// call makes the members at these addresses learn about one another.
func call(t *testing.T, net *gossiptest.Memory, address int, members ...string) {
	t.Helper()
	c := memberlist.DefaultLANConfig()
	c.Name, c.Label, c.Transport, c.LogOutput = "go-between", "bourse/bourse", net.End(address), noLog{}
	c.SecretKey, c.EnableCompression = gossip.PublicKey(), false
	list, err := memberlist.Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = list.Shutdown() })
	if n, err := list.Join(members); n != len(members) {
		t.Fatalf("%d of %d members know the others: %v", n, len(members), err)
	}
	if n, err := list.Join(members); n != len(members) {
		t.Fatalf("%d of %d members know the others: %v", n, len(members), err)
	}
}

type noLog struct{}

func (noLog) Write(b []byte) (int, error) { return len(b), nil }

// TestARivalProvesItself checks which rival with the same id and an older boot makes a server stop.
// A rival that has only the gossip key must not make it stop, even if the rival answers pings. A
// rival with a certificate for the id must.
func TestARivalProvesItself(t *testing.T) {
	for _, tt := range []struct {
		name   string
		proofs gossip.Proofs
		real   bool
	}{{"unsigned", nil, false}, {"its own key", newPretender(), false}, {"its certificate", nil, true}} {
		t.Run(tt.name, func(t *testing.T) {
			gossiptest.Virtual(t, func(t *testing.T) {
				net, o := gossiptest.NewMemory(1), new(offices)
				twin := certified(2)
				twin.Address = "127.0.0.1:6666"
				c := gossip.Config{Self: twin, Proofs: tt.proofs}
				var rival running
				if tt.real {
					certificate := o.open(twin)
					c.Proofs = certificate
					rival = joinVirtual(t, net, 9, c)
					certificate.self = gossip.SelfHandler(rival.Members)
				} else {
					rival = joinVirtual(t, net, 9, c)
				}
				time.Sleep(time.Second)
				var group []running
				for i := 1; i <= 3; i++ {
					m, certificate := joinCertified(t, net, i, o, gossip.Config{Self: certified(i), Join: joinOf(group)})
					if i == 2 && tt.real { // the same certificate
						certificate.mu.Lock()
						certificate.private = c.Proofs.(*office).key()
						certificate.mu.Unlock()
						m.Renew()
					}
					group = append(group, m)
				}
				untilCount(t, group, 3)
				call(t, net, 50, rival.Addr(), group[0].Addr())
				if !tt.real {
					unchanged(t, group)
					return
				}
				if err := group[1].err(); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
					t.Errorf("the later server stopped with %v, want already_exists", err)
				}
			})
		})
	}
}

// TestReplayedStatementsRemoveNoMember replays a server's statements from an earlier
// boot, sent from its former address by an impostor that answers pings there.
func TestReplayedStatementsRemoveNoMember(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, o := gossiptest.NewMemory(1), new(offices)
		first, certificate := joinCertified(t, net, 1, o, gossip.Config{Self: certified(1)})
		spy := memberlist.DefaultLANConfig()
		spy.Name, spy.Label, spy.Transport, spy.LogOutput = "spy", "bourse/bourse", net.End(60), noLog{}
		spy.SecretKey, spy.EnableCompression = gossip.PublicKey(), false
		list, err := memberlist.Create(spy)
		if err != nil {
			t.Fatal(err)
		}
		until(t, first.Members, "it has settled", func() bool { return len(first.Members.Members()) == 1 })
		time.Sleep(5 * time.Second)
		if _, err := list.Join([]string{first.Addr()}); err != nil {
			t.Fatal(err)
		}
		var name string
		var meta []byte
		for _, n := range list.Members() {
			if n.Name != "spy" {
				name, meta = n.Name, n.Meta
			}
		}
		_ = list.Shutdown()
		first.stop()
		o.mu.Lock()
		delete(o.at, certified(1).Address)
		o.mu.Unlock()

		again := certified(1)
		again.Address = "127.0.0.1:5555"
		c := o.open(again)
		c.private = certificate.key()
		second := joinVirtual(t, net, 2, gossip.Config{Self: again, Proofs: c})
		c.self = gossip.SelfHandler(second.Members)
		time.Sleep(time.Second)
		intrude(t, net, 1, name, meta, second.Addr())
		time.Sleep(time.Minute)
		if got, ok := second.Worker("w1"); !ok || got.Address != again.Address {
			t.Errorf("w1 is listed as %+v", got)
		}
		if _, err := second.list(); err != nil {
			t.Errorf("the new server has stopped: %v", err)
		}
	})
}

// TestEarlierBootStaysAway checks that a member does not list a server's earlier boot again if it learns of that boot
// late, from a server that has not noticed that the boot has ended. The certificate at the server's address, of a later
// boot, proves the earlier boot's metadata, too.
func TestEarlierBootStaysAway(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, o := gossiptest.NewMemory(1), new(offices)
		first, _ := joinCertified(t, net, 1, o, gossip.Config{Self: certified(1)})
		second, _ := joinCertified(t, net, 2, o, gossip.Config{Self: certified(2), Join: []string{first.Addr()}})
		untilCount(t, []running{first, second}, 2)

		late := memberlist.DefaultLANConfig()
		late.Name, late.Label, late.Transport, late.LogOutput = "late", "bourse/bourse", net.End(50), noLog{}
		late.SecretKey, late.EnableCompression, late.ProbeInterval, late.PushPullInterval = gossip.PublicKey(), false, 0, 0
		list, err := memberlist.Create(late)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = list.Shutdown() })
		if _, err := list.Join([]string{first.Addr(), second.Addr()}); err != nil {
			t.Fatal(err)
		}
		net.Partition(func(from, to int) bool { return (from == 50) != (to == 50) })
		second.kill()
		until(t, first.Members, "the second is lost", func() bool { return len(first.Members.Members()) == 1 })

		net.Partition(nil)
		if _, err := list.Join([]string{first.Addr()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := first.Members.Members(); len(got) != 1 {
			t.Errorf("the first member lists %+v, want only itself", got)
		}
	})
}

// list returns an error if the member has stopped.
func (r running) list() ([]bourse.Member, error) {
	select {
	case <-r.ended:
		return nil, r.err()
	default:
		return r.Members.Members(), nil
	}
}

// TestARenewedCertificate checks that a member whose key has changed remains a member, and that
// both earlier and later members accept what it signs with the new key.
func TestARenewedCertificate(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, o := gossiptest.NewMemory(1), new(offices)
		lost := new(losses)
		first, _ := joinCertified(t, net, 1, o, gossip.Config{Self: certified(1), OnLost: lost.add})
		second, certificate := joinCertified(t, net, 2, o, gossip.Config{Self: certified(2), Join: []string{first.Addr()}})
		untilCount(t, []running{first, second}, 2)
		certificate.rekey()
		second.Renew()
		second.SetLeaving(true)
		until(t, first.Members, "it leaves", func() bool { m, ok := first.Worker("w2"); return ok && m.Leaving })
		statement := []byte("a statement")
		if signature, err := certificate.Sign(statement); err != nil || !first.KeyOf(certified(2)).Verify(statement, signature) {
			t.Errorf("the key of w2 is not the new one (%v)", err)
		}
		third, _ := joinCertified(t, net, 3, o, gossip.Config{Self: certified(3), Join: []string{first.Addr()}})
		untilCount(t, []running{first, second, third}, 3)
		if got := lost.list(); len(got) != 0 {
			t.Errorf("reported losses: %v, want none", got)
		}
	})
}

// TestRecheck removes a server from the cluster: it still answers pings, but nobody accepts
// its certificate. It must not be listed until it has another certificate.
func TestRecheck(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		net, o := gossiptest.NewMemory(1), new(offices)
		group := startCertified(t, net, o, 3)
		removed := certified(2)
		o.mu.Lock()
		office := o.at[removed.Address]
		delete(o.at, removed.Address)
		o.mu.Unlock()
		for _, i := range []int{0, 2} {
			group[i].Recheck(removed.ID)
			if got, ok := group[i].Worker(removed.ID); ok {
				t.Errorf("the server still lists %+v", got)
			}
		}
		time.Sleep(5 * time.Minute)
		for _, i := range []int{0, 2} {
			if got := group[i].Members.Members(); len(got) != 2 {
				t.Errorf("after five minutes, the server lists %+v", got)
			}
		}
		office.rekey()
		group[1].Renew()
		o.mu.Lock()
		o.at[removed.Address] = office
		o.mu.Unlock()
		untilCount(t, group, 3)
	})
}
