package admission_test

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// TestIssueOther checks that the certificate of a server outside of the cluster is valid for its
// hosts, and that the cluster's servers do not accept it.
func TestIssueOther(t *testing.T) {
	now := time.Now()
	ca := newCA(t, now)
	pair, err := ca.IssueOther("nats-1", []string{"nats.example.com", "10.0.0.1"}, now)
	if err != nil {
		t.Fatal(err)
	}
	cert := parse(t, pair)
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, ca.Pair()))
	for _, host := range []string{"nats.example.com", "10.0.0.1"} {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	if who, err := admission.IdentityOf(cert); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("got identity %+v, %v; want code forbidden", who, err)
	}
	for _, hosts := range [][]string{nil, {""}, {"gru-1.worker.bourse.internal"}, {"000001.tag.bourse.internal"}} {
		if _, err := ca.IssueOther("nats-1", hosts, now); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("hosts %q: got %v, want an error", hosts, err)
		}
	}
}
