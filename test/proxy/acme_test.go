package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// shortLived is the validity of the certificates that the test's CA issues, in seconds.
const shortLived = 5

// TestACME runs a CA that validates host names with HTTP-01. A proxy must get a certificate
// for an app's name when a client first requests it, no certificate for unknown names, and
// a new certificate before the first one expires.
func TestACME(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	const name = "shop.example.com"
	h := newHouseWith(t, 1, 1, nil, []string{
		"--acme", "ops@example.com", "--acme-ca", authority.api.URL + wfe.DirectoryPath, "--data", t.TempDir(), "--host", name + "=shop",
	}, func(c *exec.Cmd) error {
		c.Env = append(os.Environ(), "SSL_CERT_FILE="+authority.file)
		return c.Start()
	})
	authority.open(t, h.proxies[0].Web[0])
	h.create("shop", h.order(kindWeb))
	h.routed(http.DefaultClient, "http://"+h.proxies[0].Web[0]+"/", name)

	shown := func(name string) (*x509.Certificate, error) {
		c, err := tls.Dial("tcp", h.proxies[0].SecureWeb[0], &tls.Config{ServerName: name, RootCAs: authority.roots, MinVersion: tls.VersionTLS12})
		if err != nil {
			return nil, err
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0], nil
	}
	first, err := shown(name)
	if err != nil {
		t.Fatalf("first handshake: %v", err)
	}
	if _, err := shown("nobody.example.com"); err == nil {
		t.Error("a certificate was requested for a name that belongs to no app")
	}
	h.eventually("the certificate is renewed", func() error {
		now, err := shown(name)
		if err == nil && now.SerialNumber.Cmp(first.SerialNumber) == 0 {
			err = errors.New("the proxy still uses the first certificate")
		}
		return err
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{ServerName: name, RootCAs: authority.roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	h.eventually("a request is answered over TLS", func() error { // a certificate may expire during the request
		r, err := get(client, "https://"+h.proxies[0].SecureWeb[0]+"/", name, "n")
		if err == nil && (r.App != "shop" || r.Nonce != "n") {
			t.Errorf("the reply is %+v, want one of app shop with nonce n", r)
		}
		return err
	})
}

// authority is an ACME CA like Let's Encrypt, in this process.
type authority struct {
	api     *httptest.Server
	handler atomic.Pointer[http.Handler]
	file    string         // file with the certificate of the CA's API
	roots   *x509.CertPool // roots of the certificates that the CA issues; set by open
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "api.pem")}
	a.api = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := a.handler.Load(); h != nil {
			(*h).ServeHTTP(w, r)
		}
	}))
	t.Cleanup(a.api.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.api.Certificate().Raw})
	if err := os.WriteFile(a.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// open starts the CA. It validates all host names at the given address.
func (a *authority) open(t *testing.T, web string) {
	t.Helper()
	port, err := strconv.Atoi(portOf(web))
	if err != nil {
		t.Fatal(err)
	}
	quiet, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: shortLived}})
	front := wfe.New(quiet, store, va.New(quiet, port, 0, true, resolver(t), store), issuer, []string{"ca.example"}, true, false, 0, 0)
	handler := front.Handler()
	a.handler.Store(&handler)
	a.roots = x509.NewCertPool()
	a.roots.AddCert(issuer.GetRootCert(0).Cert)
}

// resolver starts a name server that resolves every host name to this host, and returns its
// address.
func resolver(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1),
			}}
		}
		_ = w.WriteMsg(m) // the CA retries
	})}
	ended := make(chan error, 1)
	go func() { ended <- s.ActivateAndServe() }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(), <-ended); err != nil {
			t.Errorf("the name server failed: %v", err)
		}
	})
	return l.Addr().String()
}
