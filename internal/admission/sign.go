package admission

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Credentials also sign what a server writes into the view: its certificate
// goes with the first transaction of an epoch, and its key signs. That is
// view.Keys.

// Own returns our certificate with those between it and the CA, in DER,
// and its key.
func (c *Credentials) Own() ([]byte, crypto.Signer) {
	cert := c.Get().cert
	key, _ := cert.PrivateKey.(crypto.Signer) // every key that TLS takes is one
	return slices.Concat(cert.Certificate...), key
}

// Author reads the certificate of another server, as of a time: what
// it signed stays valid when it has expired. CodeForbidden: it is not one of
// the cluster, or names no server.
func (c *Credentials) Author(der []byte, at time.Time) (bourse.WorkerID, bourse.Role, crypto.PublicKey, error) {
	chain, err := x509.ParseCertificates(bytes.Clone(der))
	if err != nil || len(chain) == 0 {
		return "", "", nil, bourse.Errorf(bourse.CodeForbidden, "what should be a certificate is none")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots: c.Get().pool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return "", "", nil, bourse.Errorf(bourse.CodeForbidden, "the certificate of %s: %w", bourse.Quoted(chain[0].Subject.CommonName), err)
	}
	who, err := IdentityOf(chain[0])
	if err == nil && who.Role == bourse.RoleScraper {
		err = bourse.Errorf(bourse.CodeForbidden, "%s is a scraper, and no server", who.ID)
	}
	return who.ID, who.Role, chain[0].PublicKey, err
}
