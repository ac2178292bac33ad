package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// hello returns a ClientHello as a modern client sends it.
func hello(name string) *tls.ClientHelloInfo {
	return &tls.ClientHelloInfo{
		ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		SupportedCurves: []tls.CurveID{tls.CurveP256}, CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256},
	}
}

// TestFiles checks that certificates are found by host name and reloaded when they change, and that invalid files have
// no effect.
func TestFiles(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	ca.write(t, dir, "a", "a.example.com", "*.example.org")
	ca.write(t, dir, "b.example.com/", "b.example.com")
	for name, text := range map[string]string{"README": "no certificate", "alone.pem": "without its key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"*.example.org", "a.example.com", "b.example.com"}, f.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	certs := &Certificates{Files: f}
	for name, found := range map[string]bool{
		"a.example.com": true, "A.Example.com.": true, "x.example.org": true, "b.example.com": true, "": true,
		"example.org": false, "x.y.example.org": false, "c.example.com": false, "org": false,
	} {
		if _, err := certs.get(hello(name), false); (err == nil) != found {
			t.Errorf("%q: %v, want a certificate: %v", name, err, found)
		}
	}
	look := func(want bool) error {
		t.Helper()
		first, _ := f.Look()
		second, err := f.Look()
		if first || second != want {
			t.Errorf("two calls of Look: %v, %v, want false, %v", first, second, want)
		}
		return err
	}
	if err := look(false); err != nil {
		t.Error(err)
	}
	ca.write(t, dir, "c", "c.example.com")
	if err := look(true); err != nil {
		t.Error(err)
	}
	if _, err := certs.get(hello("c.example.com"), false); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.pem"), []byte("half a certific"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := look(false); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("an invalid certificate file: %v, want %s", err, bourse.CodeInvalid)
	}
	if _, err := certs.get(hello("c.example.com"), false); err != nil {
		t.Errorf("the previously read certificate is no longer used: %v", err)
	}
	if _, err := OpenFiles(dir); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("open with an invalid certificate file: %v", err)
	}
}

// TestSelfSigned checks that a self-signed certificate is used if this is enabled and there is no other certificate for
// the name.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	c := &Certificates{}
	if _, err := c.get(hello("a.example.com"), false); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("self-signed certificates disabled: %v", err)
	}
	for _, name := range []string{"a.example.com", "", "127.0.0.1"} {
		cert, err := c.get(hello(name), true)
		if err != nil {
			t.Fatal(err)
		}
		if name == "" {
			name = "localhost"
		}
		if err := cert.Leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
		again, err := c.get(hello(name), true)
		if err != nil || again != cert {
			t.Errorf("%s: each call returns another certificate (%v)", name, err)
		}
	}
	for i := range maxSelfSigned + 10 {
		if _, err := c.get(hello(fmt.Sprintf("n%d.example.com", i)), true); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.selfSignedCerts.byName); n > maxSelfSigned {
		t.Errorf("%d certificates are stored", n)
	}
}

// TestACME checks that the CA is asked only for allowed names, and not repeatedly. Package test/proxy tests that
// certificates are issued.
func TestACME(t *testing.T) {
	t.Parallel()
	errNo := errors.New("no app has this name")
	a := NewACME(ACMEConfig{
		Email: "ops@example.com", CA: "https://127.0.0.1:1/directory", Storage: t.TempDir(), HTTP: netip.MustParseAddrPort("127.0.0.1:1"),
		Log: slog.New(slog.DiscardHandler), Allowed: func(name string) error {
			if name != "shop.example.com" {
				return errNo
			}
			return nil
		},
	})
	start(t, Config{Certificates: &Certificates{ACME: a}}) // so that the library's goroutine is stopped
	if _, err := a.get(hello("other.example.com")); !errors.Is(err, errNo) {
		t.Errorf("a name without an app: %v, want %v", err, errNo)
	}
	failed := func() {
		if err := a.event(t.Context(), "cert_failed", map[string]any{"identifier": "shop.example.com", "error": errNo}); err != nil {
			t.Error(err)
		}
	}
	if err := a.checkAllowed("shop.example.com"); err != nil {
		t.Error(err)
	}
	for _, want := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause} {
		failed()
		if got := a.failed["shop.example.com"].pause; got != want {
			t.Errorf("pause after a failure: %s, want %s", got, want)
		}
	}
	if err := a.checkAllowed("shop.example.com"); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("immediately after a failure: %v", err)
	}
	if err := a.event(t.Context(), "cert_obtained", map[string]any{"identifier": "shop.example.com"}); err != nil || a.checkAllowed("shop.example.com") != nil {
		t.Errorf("after the certificate was issued: %v, %v", err, a.checkAllowed("shop.example.com"))
	}
	h := a.Handler(describe)
	for path, want := range map[string]int{"/": http.StatusOK, "/.well-known/acme-challenge/of-the-app": http.StatusOK} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop.example.com"+path, http.NoBody))
		if w.Code != want {
			t.Errorf("GET %s: %d, want %d: an app may handle its own challenges", path, w.Code, want)
		}
	}
}
