package admission

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Credentials also implements view.Keys: it signs the transactions that a server writes to the view. A server sends its
// certificate with the first transaction of an epoch.

// Own returns the server's certificate in DER, followed by any intermediate certificates, and the
// server's key.
func (c *Credentials) Own() ([]byte, crypto.Signer) {
	cert := c.Get().cert
	key, _ := cert.PrivateKey.(crypto.Signer) // never fails, because TLS accepts no other keys
	return slices.Concat(cert.Certificate...), key
}

// Author verifies another server's certificate, and returns the server's id, role and public key. The certificate must
// have been valid at the given time. It may have expired since then: signatures that were made before its expiry remain
// valid. Errors: forbidden if the certificate is not from the cluster or does not name a server.
func (c *Credentials) Author(der []byte, at time.Time) (bourse.WorkerID, bourse.Role, crypto.PublicKey, error) {
	chain, err := x509.ParseCertificates(bytes.Clone(der))
	if err != nil || len(chain) == 0 {
		return "", "", nil, bourse.Errorf(bourse.CodeForbidden, "invalid certificate")
	}
	if err := verifyChain(chain, x509.VerifyOptions{Roots: c.Get().signers, CurrentTime: at}); err != nil {
		return "", "", nil, bourse.Errorf(bourse.CodeForbidden, "the certificate of %s: %w", bourse.Quoted(chain[0].Subject.CommonName), err)
	}
	who, err := IdentityOf(chain[0])
	if err == nil && who.Role == bourse.RoleScraper {
		err = bourse.Errorf(bourse.CodeForbidden, "%s is a scraper, not a server", who.ID)
	}
	return who.ID, who.Role, chain[0].PublicKey, err
}
