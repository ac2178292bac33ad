package image

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/bourse-dev/bourse"
)

// TestReasons checks that a caller learns why an image's registry failed, and which worker flag may help. The message
// must not contain details that belong only in the worker's log.
func TestReasons(t *testing.T) {
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
	}
	plain := httptest.NewServer(answer(http.StatusOK, ""))
	t.Cleanup(plain.Close)
	secure := httptest.NewTLSServer(answer(http.StatusOK, ""))
	t.Cleanup(secure.Close)
	serve := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: otherCA(t)}), 0o600); err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := closed.Addr().String()
	_ = closed.Close()
	plainHost, secureHost := strings.TrimPrefix(plain.URL, "http://"), strings.TrimPrefix(secure.URL, "https://")
	withCA := map[string]Registry{plainHost: {CA: ca}, secureHost: {CA: ca}}
	for name, c := range map[string]struct {
		host    string
		private bool
		code    bourse.Code
		want    string // text after "image NAME: "; HOST stands for the host
	}{
		"no such host":     {"registry.invalid", true, bourse.CodeUnavailable, "HOST cannot be reached: no such host"},
		"refused":          {refused, true, bourse.CodeUnavailable, "HOST cannot be reached: connection refused"},
		"plain HTTP":       {plainHost, true, bourse.CodeUnavailable, "HOST does not use TLS: to allow that, start the worker with --registry-http HOST"},
		"another CA":       {secureHost, true, bourse.CodeUnavailable, "the certificate of HOST is signed by an unknown authority: to trust it, start the worker with --registry-ca HOST=FILE"},
		"the worker's own": {refused, false, bourse.CodeInvalid, "its registry has a private address: to allow that, start the worker with --registry-private"},
		"no such image":    {serve(answer(http.StatusNotFound, "")), true, bourse.CodeNotFound, "there is no such image"},
		"denied": {
			serve(answer(http.StatusUnauthorized, "")), true, bourse.CodeNotFound,
			"there is no such image, or this organization has no credentials for it on the worker (--registry-auth)",
		},
		"forbidden": {
			serve(answer(http.StatusForbidden, "")), true, bourse.CodeNotFound,
			"there is no such image, or this organization has no credentials for it on the worker (--registry-auth)",
		},
		"too many": {
			serve(answer(http.StatusTooManyRequests, "")), true, bourse.CodeUnavailable,
			"HOST answered 429 Too Many Requests; its limit may be higher with credentials (--registry-auth)",
		},
		"it fails":   {serve(answer(http.StatusServiceUnavailable, "")), true, bourse.CodeUnavailable, "HOST answered 503 Service Unavailable"},
		"a teapot":   {serve(answer(http.StatusTeapot, "")), true, bourse.CodeInvalid, "HOST answered 418 I'm a teapot"},
		"breaks off": {serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })), true, bourse.CodeUnavailable, "HOST closed the connection"},
		"sent on": {
			serve(http.RedirectHandler("http://"+refused+"/blob?signature=secret", http.StatusTemporaryRedirect)), true, bourse.CodeUnavailable,
			refused + " cannot be reached: connection refused",
		},
		"hangs": {serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })), true, bourse.CodeUnavailable, "HOST does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &registries{stall: 5 * time.Second, reach: networkPolicy{private: c.private}}
			if name == "plain HTTP" || name == "another CA" {
				r.config = withCA
			}
			if name == "hangs" {
				r.stall = 100 * time.Millisecond
			}
			defer r.close()
			image := c.host + "/web:v1"
			_, _, err := r.resolver("").Resolve(t.Context(), image)
			if err != nil {
				err = &registryError{err}
			}
			got := withCode(err, image)
			want := "image " + image + ": " + strings.ReplaceAll(c.want, "HOST", c.host)
			if bourse.CodeOf(got) != c.code || bourse.MessageOf(got) != want {
				t.Errorf("%s: %s\nwant %s: %s\ncause: %v", bourse.CodeOf(got), bourse.MessageOf(got), c.code, want, err)
			}
		})
	}
}

// TestRegistryMessages checks that a registry's own message is reduced to a short line.
func TestRegistryMessages(t *testing.T) {
	body, err := json.Marshal(map[string]any{"errors": []any{map[string]string{"code": "TOOMANYREQUESTS", "message": "pull\x1b[31m\nlimit " + strings.Repeat("é", 999)}}})
	if err != nil {
		t.Fatal(err)
	}
	got := statusText(&remoteerrors.ErrUnexpectedStatus{StatusCode: 429, Body: body})
	if !strings.HasPrefix(got, "429 Too Many Requests: pull [31m limit é") || len(got) > 300 || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

func FuzzStatusText(f *testing.F) {
	f.Add(404, []byte(`{"errors":[{"message":"manifest unknown"}]}`))
	f.Add(-1, []byte("\x00"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		got := statusText(&remoteerrors.ErrUnexpectedStatus{StatusCode: status, Body: body})
		if len(got) > 300 || strings.ContainsAny(got, "\n\r\x1b\x00") {
			t.Errorf("%q", got)
		}
		_ = hostOf(&url.Error{URL: string(body)}, "r")
	})
}

// otherCA returns the certificate of a CA that has not signed any certificate in this test.
func otherCA(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
