package admission_test

import (
	"crypto/rand"
	"crypto/x509"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

func csr(t *testing.T) (request, key []byte) {
	t.Helper()
	private, key, err := admission.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"other.broker.bourse.internal"}}, private)
	if err != nil {
		t.Fatal(err)
	}
	return request, key
}

// TestIssuer has an issuer sign a certificate for a server's own key. A server that knows only the CA must accept the
// certificate for the identity that the issuer chose, until the issuer's certificate expires.
func TestIssuer(t *testing.T) {
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := ca.NewIssuer(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	request, key := csr(t)
	who := admission.Identity{ID: "gru-1", Role: bourse.RoleWorker}
	cert, err := issuer.Sign(request, who, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	creds, err := admission.NewCredentials(ca.Pair().Cert, admission.Pair{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if creds.Self() != who || time.Until(creds.Expires()) > admission.RenewedLife {
		t.Errorf("got a certificate for %v that expires at %s", creds.Self(), creds.Expires())
	}
	other, err := ca.Issue(admission.Identity{ID: "b", Role: bourse.RoleBroker}, []string{"10.0.0.1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := admission.NewCredentials(ca.Pair().Cert, other)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := creds.Own()
	if id, role, _, err := peer.Author(der, time.Now()); err != nil || id != who.ID || role != who.Role {
		t.Errorf("got author %s %s, %v; want %s %s", role, id, err, who.Role, who.ID)
	}

	pair := must(issuer.Issue(who, nil, time.Now()))(t)
	if creds, err := admission.NewCredentials(ca.Pair().Cert, pair); err != nil || !creds.RenewalDue(time.Now().Add(admission.RenewedLife*3/4)) {
		t.Errorf("RenewalDue of a certificate whose key the issuer created: got false or an error (%v)", err)
	}
	late := issuer.Expires().Add(-time.Hour)
	if cert, err = issuer.Sign(request, who, nil, late); err != nil {
		t.Fatal(err)
	}
	if leaf := parse(t, admission.Pair{Cert: cert, Key: key}); leaf.NotAfter.After(issuer.Expires()) {
		t.Errorf("the certificate expires at %s, after its issuer, which expires at %s", leaf.NotAfter, issuer.Expires())
	}
	second := must(issuer.NewIssuer(time.Now()))(t)
	cert = must(second.Sign(request, who, nil, time.Now()))(t)
	if _, err := admission.NewCredentials(ca.Pair().Cert, admission.Pair{Cert: cert, Key: key}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("an issuer of an issuer: %v, want invalid", err)
	}
	stranger, err := admission.NewCA("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := must(admission.NewCredentials(stranger.Pair().Cert, must(stranger.Issue(who, nil, time.Now()))(t)))(t).Author(der, time.Now()); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("another cluster's CA: %v, want forbidden", err)
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestSignRefuses(t *testing.T) {
	issuer := must(must(admission.NewCA("test", time.Now()))(t).NewIssuer(time.Now()))(t)
	request, _ := csr(t)
	broken := append([]byte{}, request...)
	broken[len(broken)-1] ^= 1 // changes the signature
	who := admission.Identity{ID: "gru-1", Role: bourse.RoleWorker}
	for name, try := range map[string]func() error{
		"no request":    func() error { _, err := issuer.Sign(nil, who, nil, time.Now()); return err },
		"another's key": func() error { _, err := issuer.Sign(broken, who, nil, time.Now()); return err },
		"a bad name": func() error {
			_, err := issuer.Sign(request, admission.Identity{ID: "a.b", Role: "worker"}, nil, time.Now())
			return err
		},
		"a second identity": func() error {
			_, err := issuer.Sign(request, who, []string{"x.broker.bourse.internal"}, time.Now())
			return err
		},
	} {
		if err := try(); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}
