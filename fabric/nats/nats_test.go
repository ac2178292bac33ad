package nats_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/servertest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// TestSuite runs the suite for fabrics over an embedded NATS server, in plain text and over TLS. It sends requests for
// quotes to each worker's own subject. The tests of Ask also run with the region's subject, which does not affect the
// other tests.
func TestSuite(t *testing.T) {
	t.Run("each", func(t *testing.T) {
		fabrictest.Run(t, func(t *testing.T) fabrictest.Network { return newNetwork(t, embedded(t), false, nil) })
	})
	t.Run("region", func(t *testing.T) {
		fabrictest.RunAsk(t, func(t *testing.T) fabrictest.Network { return newNetwork(t, embedded(t), true, nil) })
	})
	t.Run("TLS", func(t *testing.T) {
		ca, err := admission.NewCA("test", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		fabrictest.Run(t, func(t *testing.T) fabrictest.Network { return newNetwork(t, embedded(t), false, ca) })
	})
}

// embedded runs a NATS server in this process until the test ends.
func embedded(t testing.TB) string { return serverWith(t, &server.Options{}).ClientURL() }

func serverWith(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	o.Host, o.NoSigs, o.NoLog = "127.0.0.1", true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatalf("NATS server: %v", err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server did not start")
	}
	return s
}

const patience = time.Minute

func open(t testing.TB, url string) *nats.Link {
	t.Helper()
	return openWith(t, nats.Config{URLs: []string{url}})
}

func openWith(t testing.TB, c nats.Config) *nats.Link {
	t.Helper()
	c.Cluster, c.PeerTimeout = "test", cmp.Or(c.PeerTimeout, 3*time.Second)
	l, err := nats.Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(l.Close)
	return l
}

// network is a broker and workers, each with its own link.
type network struct {
	t      testing.TB
	url    string        // URL of the broker's NATS server
	place  func() string // returns the URL for the next worker; if nil, all use the same server
	ca     *admission.CA
	fabric *nats.Fabric

	mu      sync.Mutex
	workers int // number of workers in gru
}

func newNetwork(t testing.TB, url string, region bool, ca *admission.CA) *network {
	n := &network{t: t, url: url, ca: ca}
	link := open(t, url)
	var config direct.TLS
	if ca != nil {
		config = credentials(t, ca, "broker-1", bourse.RoleBroker).Client
	}
	caller := direct.NewOver(func(ctx context.Context, _, address string) (net.Conn, error) { return link.Dial(ctx, address) }, config, admission.Proof{})
	t.Cleanup(caller.Close)
	n.fabric = &nats.Fabric{Caller: caller, Link: link, ConnectionsOnly: ca != nil}
	if region {
		n.fabric.WorkerCount = func(bourse.Region) int {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.workers
		}
	}
	return n
}

func (n *network) Fabric() fabric.Fabric { return n.fabric }

func (n *network) Serve(id bourse.WorkerID, h http.Handler) fabrictest.Worker {
	url := n.url
	if n.place != nil {
		url = n.place()
	}
	link := open(n.t, url)
	var config *tls.Config
	if n.ca != nil {
		config = credentials(n.t, n.ca, id, bourse.RoleWorker).Server(bourse.RoleBroker)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(n.t.Context()))
	var wg sync.WaitGroup
	ln := link.Listen(nats.PortAPI)
	wg.Go(func() { _ = direct.Serve(ctx, ln, direct.Handler(id, h), config, slog.New(slog.DiscardHandler)) })
	if _, err := link.Subscribe(id, "gru", h); err != nil {
		n.t.Fatalf("offer: %v", err)
	}
	n.reaches(link)
	n.mu.Lock()
	n.workers++
	n.mu.Unlock()
	kill := sync.OnceFunc(func() {
		link.Cut()
		wg.Wait()
		n.forgets(link)
	})
	n.t.Cleanup(func() {
		stop()
		kill()
	})
	return fabrictest.Worker{Kill: kill, Member: bourse.Member{ID: id, Role: bourse.RoleWorker, Region: "gru", Address: link.HostPort(nats.PortAPI)}}
}

// reaches waits until the broker's NATS server knows the subjects of a worker, which may be
// connected to another server.
func (n *network) reaches(worker *nats.Link) {
	n.t.Helper()
	if !n.fabric.Link.Connected() {
		return
	}
	subject, err := worker.AnswerProbe()
	if err == nil {
		ctx, cancel := context.WithTimeout(n.t.Context(), patience)
		defer cancel()
		err = n.fabric.Link.Probe(ctx, subject)
	}
	if err != nil {
		n.t.Fatalf("the broker does not find the worker: %v", err)
	}
}

// forgets waits until the broker's NATS server knows that a worker's connection has ended. Messages sent earlier are
// lost.
func (n *network) forgets(worker *nats.Link) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), patience)
	defer cancel()
	if err := n.fabric.Link.Forgotten(ctx, worker.Nothing()); err != nil {
		n.t.Errorf("the broker does not notice that the worker is gone: %v", err)
	}
}

func credentials(t testing.TB, ca *admission.CA, id bourse.WorkerID, role bourse.Role) *admission.Credentials {
	t.Helper()
	pair, err := ca.Issue(admission.Identity{ID: id, Role: role}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c, err := admission.NewCredentials(ca.Pair().Cert, pair)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// freePort returns a port that nothing else on this host will use during the test, even while the test's own server is
// down.
func freePort(t testing.TB) int {
	t.Helper()
	first, _ := servertest.Ports(t)
	return first
}
