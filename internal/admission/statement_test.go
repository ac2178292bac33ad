package admission_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// selfSigned returns credentials with the given key, whose certificate is its own CA.
func selfSigned(t *testing.T, key crypto.Signer, names ...string) *admission.Credentials {
	t.Helper()
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), DNSNames: names, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c, err := admission.NewCredentials(cert, admission.Pair{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStatement checks, for every common kind of key, that a server's statement is verified with
// its certificate and with no other.
func TestStatement(t *testing.T) {
	small, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	large, _ := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	_, edwards, _ := ed25519.GenerateKey(rand.Reader)
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	other := selfSigned(t, small, "w2.worker.bourse.internal").Client().Certificates[0].Leaf
	for name, key := range map[string]crypto.Signer{"P-256": small, "P-521": large, "Ed25519": edwards, "RSA": old} {
		c := selfSigned(t, key, "w1.worker.bourse.internal", "00A1b2.tag.bourse.internal")
		cert := c.Client().Certificates[0].Leaf
		signature, err := c.Sign([]byte("hello"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !admission.Verify(cert, []byte("hello"), signature) {
			t.Errorf("%s: a valid signature was rejected", name)
		}
		if admission.Verify(cert, []byte("hellO"), signature) || admission.Verify(cert, []byte("hello"), signature[1:]) || admission.Verify(cert, []byte("hello"), nil) {
			t.Errorf("%s: an invalid signature was accepted", name)
		}
		if key != crypto.Signer(small) && admission.Verify(other, []byte("hello"), signature) {
			t.Errorf("%s: the signature was accepted as another server's", name)
		}
		if c.Self().ID != "w1" || !c.HasTag(0x00a1b2) || c.HasTag(0x00a1b3) || c.HasTag(0) {
			t.Errorf("%s: got %+v, with a tag that the certificate does not contain", name, c.Self())
		}
	}
}

// TestTagIsNotARole checks that "tag" is not a valid role, so that a DNS name for a tag cannot
// identify a server.
func TestTagIsNotARole(t *testing.T) {
	if err := (admission.Identity{ID: "00a1b2", Role: "tag"}).Validate(); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("got %v, want code invalid", err)
	}
}
