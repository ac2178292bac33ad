package admission_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

var worker1 = admission.Identity{ID: "mad-1", Role: bourse.RoleWorker}

func newCA(t *testing.T, now time.Time) *admission.CA {
	t.Helper()
	ca, err := admission.NewCA("test", now)
	if err != nil {
		t.Fatalf("create a CA: %v", err)
	}
	return ca
}

func issue(t *testing.T, ca *admission.CA, who admission.Identity, now time.Time, hosts ...string) admission.Pair {
	t.Helper()
	p, err := ca.Issue(who, hosts, now)
	if err != nil {
		t.Fatalf("issue a certificate: %v", err)
	}
	return p
}

func parse(t *testing.T, p admission.Pair) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(p.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TestIssue checks that a certificate identifies its server to the cluster and to clients, and
// that a CA can be parsed from its PEM texts.
func TestIssue(t *testing.T) {
	now := time.Now()
	ca, err := admission.ParseCA(newCA(t, now).Pair())
	if err != nil {
		t.Fatalf("parse the CA: %v", err)
	}
	cert := parse(t, issue(t, ca, worker1, now, "127.0.0.1", "::1", "api.example.com"))
	if got, err := admission.IdentityOf(cert); err != nil || got != worker1 {
		t.Errorf("the certificate contains identity %+v (%v), want %+v", got, err, worker1)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, ca.Pair()))
	for _, host := range []string{"mad-1.worker.bourse.internal", "127.0.0.1", "::1", "api.example.com"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"mad-2.worker.bourse.internal", "mad-1.broker.bourse.internal", "127.0.0.2"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err == nil {
			t.Errorf("the certificate is also valid for %s", host)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	ca := newCA(t, time.Now())
	tests := []struct {
		name  string
		who   admission.Identity
		hosts []string
	}{
		{"no name", admission.Identity{Role: bourse.RoleWorker}, nil},
		{"no role", admission.Identity{ID: "mad-1"}, nil},
		{"a name with a dot", admission.Identity{ID: "mad-1.worker", Role: bourse.RoleWorker}, nil},
		{"a name that matches all hosts", admission.Identity{ID: "*", Role: bourse.RoleWorker}, nil},
		{"a host that is another server", worker1, []string{"mad-2.worker.bourse.internal"}},
		{"a host that is another server, with a final dot", worker1, []string{"mad-2.worker.bourse.internal."}},
		{"a host that is another server, in capitals", worker1, []string{"MAD-2.worker.BOURSE.internal"}},
		{"an empty host", worker1, []string{""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ca.Issue(tt.who, tt.hosts, time.Now()); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("got %v, want an error", err)
			}
		})
	}
}

func TestIdentityOf(t *testing.T) {
	for name, names := range map[string][]string{
		"none":    nil,
		"a host":  {"api.example.com"},
		"two":     {"a.worker.bourse.internal", "b.worker.bourse.internal"},
		"all":     {"*.worker.bourse.internal"},
		"no role": {"a.bourse.internal"},
		"deeper":  {"a.b.worker.bourse.internal"},
	} {
		if got, err := admission.IdentityOf(&x509.Certificate{DNSNames: names}); bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	now := time.Now()
	ca, other := newCA(t, now), newCA(t, now)
	good := issue(t, ca, worker1, now)
	tests := []struct {
		name string
		ca   []byte
		pair admission.Pair
		ok   bool
	}{
		{"good", ca.Pair().Cert, good, true},
		{"of another CA", other.Pair().Cert, good, false},
		{"expired", ca.Pair().Cert, issue(t, ca, worker1, now.AddDate(-2, 0, 0)), false},
		{"not yet valid", ca.Pair().Cert, issue(t, ca, worker1, now.AddDate(1, 0, 0)), false},
		{"of nobody", ca.Pair().Cert, ca.Pair(), false},
		{"with another's key", ca.Pair().Cert, admission.Pair{Cert: good.Cert, Key: issue(t, ca, worker1, now).Key}, false},
		{"no CA", nil, good, false},
		{"no PEM", []byte("x"), admission.Pair{Cert: []byte("x"), Key: []byte("x")}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			f := admission.Files{CA: filepath.Join(dir, "ca"), Pair: filepath.Join(dir, "pair")}
			for path, text := range map[string][]byte{f.CA: tt.ca, f.Pair: tt.pair.PEM()} {
				if err := os.WriteFile(path, text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := admission.Load(f)
			if tt.ok && (err != nil || c.Self() != worker1) {
				t.Errorf("got %v", err)
			}
			if !tt.ok && bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("got %v, want an error", err)
			}
		})
	}
	if _, err := admission.Load(admission.Files{}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("no files: got %v", err)
	}
}
