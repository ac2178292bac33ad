package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view/gossip"
)

// member is a server on loopback that does nothing except list the members of its
// cluster.
type member struct {
	bourse.Member
	ca       *admission.CA
	release  string
	lists    []bourse.Member
	ahead    time.Duration // how far its clock is ahead
	listener net.Listener
}

// listening returns a server that has an address, but does not answer yet.
func listening(t *testing.T, ca *admission.CA, id bourse.WorkerID, role bourse.Role) *member {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &member{Member: bourse.Member{ID: id, Role: role, Address: l.Addr().String()}, ca: ca, release: "v1", listener: l}
}

// serve runs the server until the test ends.
func (m *member) serve(t *testing.T) {
	t.Helper()
	pair, err := m.ca.Issue(admission.Identity{ID: m.ID, Role: m.Role}, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	creds, err := admission.NewCredentials(m.ca.Pair().Cert, pair)
	if err != nil {
		t.Fatal(err)
	}
	config := creds.Server(bourse.ServerRoles()...)
	if m.Role == bourse.RoleBroker {
		config = creds.Public()
	}
	mux := http.NewServeMux()
	mux.Handle(gossip.PathMembers, direct.Handler(m.ID, gossip.MembersHandler(m.release, func() []bourse.Member { return slices.Clone(m.lists) })))
	gate := admission.Gate{Proof: admission.Proof{Cluster: "c1"}} // the same checks as in real servers
	dated := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(m.ahead).UTC().Format(http.TimeFormat))
		gate.Wrap(mux).ServeHTTP(w, r)
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = direct.Serve(ctx, m.listener, dated, config, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
}

// refusing returns an address that refuses connections for as long as the test runs: its port
// is taken, but nothing listens.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// thisHost returns the checks of the host with the worker h1. address is the worker's API.
func thisHost(t *testing.T, ca *admission.CA, address string, join ...string) *cluster {
	t.Helper()
	s, _ := workerIn(t, ca, issued(t, ca, "h1", 0).PEM())
	s.Listen, s.Gossip, s.Join = netip.MustParseAddrPort(address), netip.MustParseAddrPort("127.0.0.1:1"), join
	return newCluster([]serve.Server{s}, "v1", time.Now)
}

// results returns the name and status of each finding.
func results(found []finding) (out []string) {
	for _, f := range found {
		out = append(out, f.Check+": "+string(f.Status))
	}
	slices.Sort(out)
	return out
}

func TestCheckCluster(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, h1, h2 *member)
		want   []string
	}{
		"all is well": {
			nil,
			[]string{"clock: ok", "members: ok", "versions: ok", "worker h1: ok"},
		},
		"alone": {
			func(_ *testing.T, h1, _ *member) { h1.lists = h1.lists[:1] },
			[]string{"members: ok", "versions: ok", "worker h1: ok"},
		},
		"its server is not running": {
			func(t *testing.T, h1, _ *member) { h1.Address = refusing(t) },
			[]string{"worker h1: problem"},
		},
		"a member refuses connections": {
			func(t *testing.T, h1, _ *member) { h1.lists[1].Address = refusing(t) },
			[]string{"clock: warning", "versions: ok", "worker h1: ok", "worker h2: problem"},
		},
		"another cluster's server has its address": {
			func(t *testing.T, _, h2 *member) { h2.ca = newCA(t, 0) },
			[]string{"clock: warning", "versions: ok", "worker h1: ok", "worker h2: problem"},
		},
		"another server has its address": {
			func(_ *testing.T, h1, _ *member) { h1.lists[1].ID = "h3" },
			[]string{"clock: ok", "versions: ok", "worker h1: ok", "worker h3: problem"},
		},
		"a member does not reach this host": {
			func(_ *testing.T, _, h2 *member) { h2.lists = h2.lists[1:] },
			[]string{"clock: ok", "versions: ok", "worker h1: ok", "worker h2: problem"},
		},
		"another release": {
			func(_ *testing.T, _, h2 *member) { h2.release = "v2" },
			[]string{"clock: ok", "members: ok", "versions: ok", "versions: warning", "worker h1: ok"},
		},
		"a clock is a day ahead": {
			func(_ *testing.T, _, h2 *member) { h2.ahead = day },
			[]string{"clock: problem", "members: ok", "versions: ok", "worker h1: ok"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ca := newCA(t, 0)
			h1, h2 := listening(t, ca, "h1", bourse.RoleWorker), listening(t, ca, "h2", bourse.RoleWorker)
			h1.lists = []bourse.Member{h1.Member, h2.Member}
			h2.lists = slices.Clone(h1.lists)
			if c.change != nil {
				c.change(t, h1, h2)
			}
			h1.serve(t)
			h2.serve(t)
			found := thisHost(t, ca, h1.Address).check(t.Context())
			if got := results(found); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q:\n%+v", got, c.want, found)
			}
			for _, f := range found {
				if f.Status != statusOK && f.Try == "" {
					t.Errorf("%+v contains no advice", f)
				}
			}
		})
	}
}

// The addresses in join are checked even if the host's servers are not running.
func TestCheckJoin(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	found := thisHost(t, newCA(t, 0), refusing(t), refusing(t)).check(t.Context())
	if got, want := results(found), []string{"join: problem", "worker h1: problem"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q, because no other server can be reached\n%+v", got, want, found)
	}
	found = thisHost(t, newCA(t, 0), refusing(t), refusing(t), listener.Addr().String(), "127.0.0.1:1").check(t.Context())
	if got, want := results(found), []string{"join: ok", "join: warning", "worker h1: problem"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q, because the host does not join its own address\n%+v", got, want, found)
	}
}

// It suffices that one NATS server accepts connections.
func TestCheckNATS(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	up, down := "nats://"+listener.Addr().String(), "nats://"+refusing(t)
	for name, c := range map[string]struct {
		urls []string
		want []status
	}{
		"none":     {nil, nil},
		"up":       {[]string{up, up}, []status{statusOK}},
		"one down": {[]string{down, up}, []status{statusWarning, statusOK}},
		"all down": {[]string{down}, []status{statusProblem}},
	} {
		h := thisHost(t, newCA(t, 0), "127.0.0.1:1")
		h.own[0].NATS.URLs = c.urls
		if got := h.checkNATS(t.Context()); !slices.Equal(statuses(got), c.want) {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}

// Members that are only on NATS cannot be asked. Members on both networks must be asked,
// whichever of their addresses the other servers list.
func TestOthers(t *testing.T) {
	const onNATS, direct = "[fd6e:6174:7300::1]:1", "10.0.0.1:4280"
	h := thisHost(t, newCA(t, 0), "127.0.0.1:1")
	b1 := bourse.Member{ID: "b1", Role: bourse.RoleBroker, Address: direct}
	lists := []bourse.Member{{ID: "b1", Role: bourse.RoleBroker, Address: onNATS}, {ID: "h1", Address: "10.0.0.9:4281"}, {ID: "w2", Address: onNATS}}
	others, n := h.others([]answer{{Member: b1, Membership: gossip.Membership{Members: lists}}})
	if len(others) != 1 || others[0].ID != b1.ID || others[0].Address != direct || n != 1 {
		t.Errorf("%+v and %d on NATS, want %+v and w2", others, n, b1)
	}
}

// identify returns an error if the server at the address belongs to another cluster.
func TestIdentify(t *testing.T) {
	ca := newCA(t, 0)
	broker := listening(t, ca, "h2-broker", bourse.RoleBroker)
	broker.serve(t)
	m, err := thisHost(t, ca, "127.0.0.1:1").identify(t.Context(), broker.Address)
	if err != nil || m.ID != broker.ID || m.Role != broker.Role {
		t.Errorf("%+v, %v; want %s", m, err, broker.ID)
	}
	_, err = thisHost(t, newCA(t, 0), "127.0.0.1:1").identify(t.Context(), broker.Address)
	if what, _ := unreached(err); err == nil || !strings.Contains(what, "another cluster") {
		t.Errorf("error %v was described as %q, want that the server belongs to another cluster", err, what)
	}
}

func TestAPIOf(t *testing.T) {
	for join, want := range map[string]string{
		"10.0.0.1:7946": "10.0.0.1:4281", "10.0.0.1:7947": "10.0.0.1:4280", "b.example.com:7948": "b.example.com:4282", "[fd00::1]:7947": "[fd00::1]:4280",
		"10.0.0.1:9999": "", "10.0.0.1": "",
	} {
		if got := apiOf(join); got != want {
			t.Errorf("%s: %q, want %q", join, got, want)
		}
	}
}

func TestMeshFindings(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	peer := func(id bourse.WorkerID, ago time.Duration) bourse.MeshPeer {
		p := bourse.MeshPeer{Worker: id}
		if ago > 0 {
			p.Handshake = now.Add(-ago)
		}
		return p
	}
	for name, c := range map[string]struct {
		mesh *bourse.Mesh
		want []status
	}{
		"none":     {nil, []status{statusWarning}},
		"no peers": {&bourse.Mesh{}, []status{statusOK}},
		"all":      {&bourse.Mesh{Peers: []bourse.MeshPeer{peer("a", time.Second), peer("b", 2*time.Minute)}}, []status{statusOK}},
		"some":     {&bourse.Mesh{Peers: []bourse.MeshPeer{peer("a", time.Second), peer("b", time.Hour), peer("c", 0)}}, []status{statusWarning, statusWarning, statusOK}},
	} {
		var got []status
		for _, f := range meshFindings(c.mesh, now) {
			got = append(got, f.Status)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
