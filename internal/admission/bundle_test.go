package admission_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// TestSigners removes the CA of some servers, and keeps only one broker's certificate as a signer. That broker's
// signatures must remain valid, but it must not be able to connect. No other certificate of the old CA may be valid for
// anything.
func TestSigners(t *testing.T) {
	now := time.Now()
	old, fresh := newCA(t, now), newCA(t, now)
	issuer := must(old.NewIssuer(now))(t)
	signed, other := must(issuer.Issue(broker1, nil, now))(t), must(issuer.Issue(admission.Identity{ID: "b-2", Role: bourse.RoleBroker}, nil, now))(t)
	bundle := slices.Concat(fresh.Pair().Cert, firstPEM(signed.Cert))
	worker := must(admission.NewCredentials(bundle, must(fresh.Issue(worker1, nil, now))(t)))(t)
	before := must(admission.NewCredentials(old.Pair().Cert, signed))(t)
	birth, _ := before.Own()
	if id, role, _, err := worker.Author(birth, now); err != nil || id != broker1.ID || role != broker1.Role {
		t.Errorf("got author %s %s, %v; want the broker", role, id, err)
	}
	if _, _, _, err := worker.Author(birth, now.Add(2*admission.RenewedLife)); err == nil {
		t.Error("the broker is accepted as an author after its certificate has expired")
	}
	if id, _, _, err := worker.Author(issuedBy(t, signed, now), now); err == nil {
		t.Errorf("%s is accepted as an author, with a certificate that the broker has issued", id)
	}
	unknown, _ := must(admission.NewCredentials(old.Pair().Cert, other))(t).Own()
	if id, _, _, err := worker.Author(unknown, now); err == nil {
		t.Errorf("%s is accepted as an author, although the old CA was removed", id)
	}
	if err := shake(t, worker.Server(bourse.ServerRoles()...), must(admission.NewCredentials(slices.Concat(old.Pair().Cert, fresh.Pair().Cert), signed))(t), worker1.ServerName()); err == nil {
		t.Error("the broker connected with a certificate of the removed CA")
	}
	if err := shake(t, must(admission.NewCredentials(slices.Concat(old.Pair().Cert, fresh.Pair().Cert), signed))(t).Public(), worker, broker1.ServerName()); err == nil {
		t.Error("the worker connected to a broker with a certificate of the removed CA")
	}
}

// issuedBy returns a broker's certificate, in DER, that a server has signed with its own key, followed
// by the server's certificate.
func issuedBy(t *testing.T, server admission.Pair, now time.Time) []byte {
	t.Helper()
	by := must(tls.X509KeyPair(server.Cert, server.Key))(t)
	key, _, err := admission.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"b-9.broker.bourse.internal"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}
	der := must(x509.CreateCertificate(rand.Reader, template, by.Leaf, &key.PublicKey, by.PrivateKey))(t)
	return append(der, by.Leaf.Raw...)
}

// firstPEM returns the first certificate of a chain.
func firstPEM(chain []byte) []byte {
	block, _ := pem.Decode(chain)
	return pem.EncodeToMemory(block)
}

// TestConnectionsOfARemovedCAAreClosed checks that connections with certificates of an old CA
// stay open while both CAs are trusted, and are closed when the old one is removed.
func TestConnectionsOfARemovedCAAreClosed(t *testing.T) {
	now := time.Now()
	old, fresh := newCA(t, now), newCA(t, now)
	both := slices.Concat(fresh.Pair().Cert, old.Pair().Cert)
	dir := t.TempDir()
	files := admission.Files{CA: filepath.Join(dir, "ca.pem"), Pair: filepath.Join(dir, "w.pem")}
	write := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(files.CA, both)
	write(files.Pair, must(fresh.Issue(worker1, nil, now))(t).PEM())
	worker := must(admission.Load(files))(t)
	ln := echoServer(t, worker)
	dial := func(by *admission.CA, who admission.Identity) *tls.Conn {
		config := must(admission.NewCredentials(both, must(by.Issue(who, nil, now))(t)))(t).Client()
		config.ServerName = worker1.ServerName()
		c := must(tls.Dial("tcp", ln.Addr().String(), config))(t)
		t.Cleanup(func() { _ = c.Close() })
		if err := echo(c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	before, after := dial(old, broker1), dial(fresh, broker1)
	look := func() {
		t.Helper()
		for range 3 {
			if _, err := worker.Look(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(files.Pair, must(fresh.Issue(worker1, nil, now))(t).PEM())
	look()
	if err := echo(before); err != nil {
		t.Errorf("connection with the old CA while both CAs are trusted: %v", err)
	}
	write(files.CA, fresh.Pair().Cert)
	look()
	if echo(before) == nil {
		t.Error("a connection with a certificate of the removed CA is still open")
	}
	if err := echo(after); err != nil {
		t.Errorf("connection with the new CA: %v", err)
	}
	if n := len(worker.Used()); n != 3 { // at the start, and after each change
		t.Errorf("the server has used %d certificates, want 3", n)
	}
}

// echoServer returns a listener that accepts other servers' connections and sends back what it receives.
func echoServer(t *testing.T, creds *admission.Credentials) net.Listener {
	t.Helper()
	ln := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	serving := tls.NewListener(creds.Track(ln), creds.Server(bourse.ServerRoles()...))
	t.Cleanup(func() { _ = serving.Close() })
	go func() {
		for c, err := serving.Accept(); err == nil; c, err = serving.Accept() {
			go copyBack(c)
		}
	}()
	return ln
}

func TestCheckIssuer(t *testing.T) {
	now := time.Now()
	ca, other := newCA(t, now), newCA(t, now)
	issuer := must(ca.NewIssuer(now))(t).Pair().PEM()
	cert := ca.Pair().Cert
	server := issue(t, ca, worker1, now)
	for name, c := range map[string]struct{ ca, issuer []byte }{
		"no CA":                   {nil, issuer},
		"two CAs":                 {slices.Concat(cert, other.Pair().Cert), issuer},
		"an issuer as the CA":     {issuer, issuer},
		"a server as the CA":      {server.Cert, issuer},
		"a CA and a server":       {slices.Concat(cert, server.Cert), issuer},
		"no issuer":               {cert, nil},
		"an issuer without a key": {cert, must(ca.NewIssuer(now))(t).Pair().Cert},
		"another CA's issuer":     {other.Pair().Cert, issuer},
		"the CA as the issuer":    {cert, ca.Pair().PEM()},
		"a server's key":          {cert, server.PEM()},
		"an expired issuer":       {cert, must(ca.NewIssuer(now.Add(-2 * 365 * 24 * time.Hour)))(t).Pair().PEM()},
	} {
		if got, err := admission.CheckIssuer(c.ca, c.issuer); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: got %v, %v; want code invalid", name, got, err)
		}
	}
	got, err := admission.CheckIssuer(append([]byte("a comment\n"), cert...), issuer)
	if err != nil || !bytes.Equal(admission.CertPEM(got), cert) {
		t.Errorf("the CA and its issuer: got %v, %v; want the CA", got, err)
	}
	if b := must(admission.ParseBundle(cert))(t); b.Issued([]*x509.Certificate{must(x509.ParseCertificate(block(t, other.Pair().Cert)))(t)}) {
		t.Error("the CA has issued another CA")
	}
}

func block(t *testing.T, text []byte) []byte {
	t.Helper()
	b, _ := pem.Decode(text)
	if b == nil {
		t.Fatal("no PEM")
	}
	return b.Bytes
}
