package main

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/admission"
)

// natsIssuer issues certificates for a NATS server and its clients.
type natsIssuer struct{ *admission.CA }

func newNATSIssuer(t *testing.T) natsIssuer {
	t.Helper()
	ca, err := admission.NewCA("nats", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return natsIssuer{ca}
}

func (o natsIssuer) issue(t *testing.T, id bourse.WorkerID) admission.Pair {
	t.Helper()
	pair, err := o.Issue(admission.Identity{ID: id, Role: bourse.RoleBroker}, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// serve starts a NATS server that accepts clients with a certificate of the issuer.
// Port 0 means any free port.
func (o natsIssuer) serve(t *testing.T, port int) *natsserver.Server {
	t.Helper()
	pair := o.issue(t, "nats")
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(o.Pair().Cert)
	if port == 0 {
		port = natsserver.RANDOM_PORT
	}
	s, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, TLSTimeout: 10,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13},
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start() // returns after Shutdown
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(natsTimeout) {
		t.Fatal("NATS does not listen")
	}
	return s
}

// TestNATSCertificatesAreReloaded checks that the NATS CA and the client certificate
// are reloaded when their files change. The server must reconnect without a restart to
// a NATS server that has changed its CA.
func TestNATSCertificatesAreReloaded(t *testing.T) {
	dir := t.TempDir()
	config := serve.ServerConfig{Cluster: "test", NATS: serve.NATSConfig{
		TLS: serve.NATSFiles{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")},
	}}
	keep := func(o natsIssuer) {
		t.Helper()
		pair := o.issue(t, "b1")
		for path, text := range map[string][]byte{config.NATS.TLS.CA: o.Pair().Cert, config.NATS.TLS.Cert: pair.Cert, config.NATS.TLS.Key: pair.Key} {
			if err := os.WriteFile(path+".new", text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
	}
	before, after := newNATSIssuer(t), newNATSIssuer(t)
	keep(before)
	first := before.serve(t, 0)
	config.NATS.URLs = []string{first.ClientURL()}
	s := &server{config: &config, self: bourse.Member{ID: "b1", Role: bourse.RoleBroker}, log: slog.New(slog.DiscardHandler)}
	link, err := s.openLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if !link.Connected() {
		t.Fatal("the link is not connected")
	}
	port := first.Addr().(interface{ AddrPort() netip.AddrPort }).AddrPort().Port()
	first.Shutdown()
	first.WaitForShutdown()
	keep(after)
	if len(s.watched) != 2 {
		t.Fatalf("%d kinds of files are watched, want 2: the CA's and the certificate's", len(s.watched))
	}
	for _, w := range s.watched {
		var changed bool
		for range 2 { // Look reports a change only when it has seen the change twice
			if changed, err = w.Look(); err != nil {
				t.Fatal(err)
			}
		}
		if !changed {
			t.Fatalf("the change of %v was not detected", w.Files())
		}
	}
	second := after.serve(t, int(port))
	await(t, "the link is connected to the server of the other CA", func() bool { return link.Connected() && second.NumClients() == 1 })
}

// TestUnusualTagRequiresCertificate checks that a worker does not start if its tag is
// neither derived from its id nor in its certificate. Other members would not send it
// calls for its machines. The error must name the DNS name that the certificate needs.
func TestUnusualTagRequiresCertificate(t *testing.T) {
	office := newNATSIssuer(t)
	dir := t.TempDir()
	old := bourse.WorkerTag(0x00a1b2)
	for name, x := range map[string]struct {
		tag   bourse.WorkerTag
		hosts []string
		clear bool
		want  bourse.Code
	}{
		"no tag yet":                        {},
		"its own":                           {tag: bourse.WorkerID("w1").Tags()[0]},
		"its last choice":                   {tag: bourse.WorkerID("w1").Tags()[bourse.TagChoices-1]},
		"an old one":                        {tag: old, want: bourse.CodeFailedPrecondition},
		"another worker's":                  {tag: bourse.WorkerID("w2").Tags()[0], want: bourse.CodeFailedPrecondition},
		"an old tag, certified":             {tag: old, hosts: []string{admission.TagName(old)}},
		"an old tag, another tag certified": {tag: old, hosts: []string{admission.TagName(old + 1)}, want: bourse.CodeFailedPrecondition},
		"an old tag, without certificates":  {tag: old, clear: true},
	} {
		pair, err := office.Issue(admission.Identity{ID: "w1", Role: bourse.RoleWorker}, append(x.hosts, "127.0.0.1"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		files := admission.Files{CA: filepath.Join(dir, "ca"), Pair: filepath.Join(dir, "pair")}
		for path, text := range map[string][]byte{files.CA: office.Pair().Cert, files.Pair: pair.PEM()} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := &server{self: bourse.Member{ID: "w1", Role: bourse.RoleWorker, Tag: x.tag}}
		if !x.clear {
			if s.creds, err = admission.Load(files); err != nil {
				t.Fatal(err)
			}
		}
		err = s.ownTag()
		if got := bourse.CodeOf(err); (err != nil || x.want != "") && got != x.want {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
		if err != nil && !strings.Contains(err.Error(), admission.TagName(x.tag)) {
			t.Errorf("%s: error %q does not contain the name to add", name, err)
		}
	}
}
