package direct_test

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

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/admission"
)

func TestPlain(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Network { return newNetwork(t, nil) })
}

func TestTLS(t *testing.T) {
	ca := newCA(t)
	fabrictest.Run(t, func(t *testing.T) fabrictest.Network { return newNetwork(t, ca) })
}

// network is a broker and its workers on loopback. It uses TLS if it has a CA.
type network struct {
	t      testing.TB
	ca     *admission.CA
	fabric *direct.Fabric
	at     string // address of the next worker; "" means any
}

func newNetwork(t testing.TB, ca *admission.CA) *network {
	n := &network{t: t, ca: ca}
	var config direct.TLS
	if ca != nil {
		config = credentials(t, ca, "broker-1", bourse.RoleBroker).Client
	}
	n.fabric = direct.New(config)
	t.Cleanup(n.fabric.Close)
	return n
}

func (n *network) Fabric() fabric.Fabric { return n.fabric }

func (n *network) Serve(id bourse.WorkerID, h http.Handler) fabrictest.Worker {
	var config *tls.Config
	if n.ca != nil {
		config = credentials(n.t, n.ca, id, bourse.RoleWorker).Server(bourse.RoleBroker)
	}
	ln, kill := serveAt(n.t, cmp.Or(n.at, "127.0.0.1:0"), direct.Handler(id, h), config)
	n.at = ""
	return fabrictest.Worker{Member: member(id, ln), Kill: kill}
}

func member(id bourse.WorkerID, ln net.Listener) bourse.Member {
	return bourse.Member{ID: id, Role: bourse.RoleWorker, Region: "gru", Address: ln.Addr().String()}
}

// serve runs a server until the test ends or the server is killed, which closes its
// listener and all connections.
func serve(t testing.TB, h http.Handler, config *tls.Config) (net.Listener, func()) {
	t.Helper()
	return serveAt(t, "127.0.0.1:0", h, config)
}

func serveAt(t testing.TB, address string, h http.Handler, config *tls.Config) (net.Listener, func()) {
	t.Helper()
	ln := listenAt(t, address)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = direct.Serve(ctx, ln, h, config, slog.New(slog.DiscardHandler)) })
	kill := func() {
		ln.Close()
		wg.Wait()
	}
	t.Cleanup(func() {
		kill()
		stop()
	})
	return ln, kill
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	return listenAt(t, "127.0.0.1:0")
}

func listenAt(t testing.TB, address string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func newCA(t testing.TB) *admission.CA {
	t.Helper()
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatalf("make a CA: %v", err)
	}
	return ca
}

func credentials(t testing.TB, ca *admission.CA, id bourse.WorkerID, role bourse.Role) *admission.Credentials {
	t.Helper()
	pair, err := ca.Issue(admission.Identity{ID: id, Role: role}, nil, time.Now())
	if err != nil {
		t.Fatalf("issue the certificate of %s: %v", id, err)
	}
	c, err := admission.NewCredentials(ca.Pair().Cert, pair)
	if err != nil {
		t.Fatalf("credentials of %s: %v", id, err)
	}
	return c
}
