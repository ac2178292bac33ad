package admission

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"

	"github.com/bourse-dev/bourse"
)

// Bundle is the content of the file with a cluster's CA. While one CA replaces another, it contains
// both, and the first one is the CA from which servers get certificates.
type Bundle struct {
	CAs []*x509.Certificate
	// Signers are servers' certificates. They remain valid for signatures, but not for connections,
	// after the CA that issued them was removed.
	Signers []*x509.Certificate
}

// ParseBundle parses certificates in PEM. Errors: invalid.
func ParseBundle(text []byte) (Bundle, error) {
	var b Bundle
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return Bundle{}, bourse.Errorf(bourse.CodeInvalid, "the CA: %w", err)
		case cert.IsCA:
			b.CAs = append(b.CAs, cert)
		default:
			b.Signers = append(b.Signers, cert)
		}
	}
	if len(b.CAs) == 0 {
		return Bundle{}, bourse.Errorf(bourse.CodeInvalid, "the CA holds no PEM certificate of a CA")
	}
	return b, nil
}

const certificateBlock = "CERTIFICATE"

// CertPEM returns a certificate in PEM.
func CertPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw})
}

// IDs returns the fingerprints of the CAs.
func (b *Bundle) IDs() []string {
	out := make([]string, len(b.CAs))
	for i, c := range b.CAs {
		sum := sha256.Sum256(c.Raw)
		out[i] = hex.EncodeToString(sum[:])
	}
	return out
}

// pools returns the CAs, and everything that is valid for signatures.
func (b *Bundle) pools() (cas, signers *x509.CertPool) {
	cas = x509.NewCertPool()
	for _, c := range b.CAs {
		cas.AddCert(c)
	}
	signers = cas.Clone()
	for _, c := range b.Signers {
		signers.AddCert(c)
	}
	return cas, signers
}

// Issued reports whether one of the CAs has issued the certificate of a server, which comes first in
// chain, either itself or through the issuers that follow. It ignores whether they have expired.
func (b *Bundle) Issued(chain []*x509.Certificate) bool {
	cas, _ := b.pools()
	return verifyChain(chain, x509.VerifyOptions{Roots: cas, CurrentTime: chain[0].NotBefore.Add(skew)}) == nil
}

// verifyChain verifies the first certificate of a chain. The others are its issuers.
func verifyChain(chain []*x509.Certificate, with x509.VerifyOptions) error {
	with.Intermediates, with.KeyUsages = x509.NewCertPool(), []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	for _, issuer := range chain[1:] {
		with.Intermediates.AddCert(issuer)
	}
	_, err := chain[0].Verify(with)
	return err
}

// CheckIssuer returns an error unless an issuer, whose certificate and key are in PEM, was created by the only
// CA in text. It returns that CA. Errors: invalid.
func CheckIssuer(text, issuer []byte) (*x509.Certificate, error) {
	b, err := ParseBundle(text)
	if err != nil {
		return nil, err
	}
	by, err := ParseCA(Pair{Cert: issuer, Key: issuer})
	switch {
	case err != nil:
		return nil, err
	case len(b.CAs) != 1 || len(b.Signers) != 0 || b.CAs[0].MaxPathLenZero:
		return nil, bourse.Errorf(bourse.CodeInvalid, "want the certificate of one CA")
	case !by.IsIssuer():
		return nil, bourse.Errorf(bourse.CodeInvalid, "want the certificate and key of an issuer, not of a CA")
	}
	cas, _ := b.pools()
	if err := verifyChain([]*x509.Certificate{by.cert}, x509.VerifyOptions{Roots: cas}); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the issuer: %w", err)
	}
	return b.CAs[0], nil
}
