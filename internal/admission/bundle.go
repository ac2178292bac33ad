package admission

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"

	"github.com/bourse-dev/bourse"
)

// Bundle holds the contents of a cluster's CA file. While one CA is being replaced by another, the bundle contains
// both. Servers get their certificates from the first CA.
type Bundle struct {
	CAs []*x509.Certificate
	// Signers contains server certificates whose CA was removed. Signatures made with these certificates remain valid,
	// but connections with them are refused.
	Signers []*x509.Certificate
}

// ParseBundle parses a CA file, which contains certificates in PEM. Errors: invalid.
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
		return Bundle{}, bourse.Errorf(bourse.CodeInvalid, "the CA file does not contain a CA certificate in PEM")
	}
	return b, nil
}

const certificateBlock = "CERTIFICATE"

// CertPEM encodes a certificate in PEM.
func CertPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw})
}

// IDs returns the CAs' fingerprints.
func (b *Bundle) IDs() []string {
	out := make([]string, len(b.CAs))
	for i, c := range b.CAs {
		sum := sha256.Sum256(c.Raw)
		out[i] = hex.EncodeToString(sum[:])
	}
	return out
}

// pools returns a pool of the CAs, and a pool of all certificates that are trusted for signatures.
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

// Issued reports whether one of the CAs issued the first certificate in chain, either directly or
// through the issuers that follow it in chain. It does not check whether the certificates have
// expired.
func (b *Bundle) Issued(chain []*x509.Certificate) bool {
	cas, _ := b.pools()
	return verifyChain(chain, x509.VerifyOptions{Roots: cas, CurrentTime: chain[0].NotBefore.Add(skew)}) == nil
}

// verifyChain verifies the first certificate of a chain. The other certificates must be those of
// its issuers.
func verifyChain(chain []*x509.Certificate, with x509.VerifyOptions) error {
	with.Intermediates, with.KeyUsages = x509.NewCertPool(), []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	for _, issuer := range chain[1:] {
		with.Intermediates.AddCert(issuer)
	}
	_, err := chain[0].Verify(with)
	return err
}

// CheckIssuer checks that text contains exactly one CA, and that this CA signed the issuer's certificate. issuer
// contains this certificate and its key, in PEM. CheckIssuer returns the CA. Errors: invalid.
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
		return nil, bourse.Errorf(bourse.CodeInvalid, "want exactly one CA certificate")
	case !by.IsIssuer():
		return nil, bourse.Errorf(bourse.CodeInvalid, "want an issuer's certificate and key, not a CA's")
	}
	cas, _ := b.pools()
	if err := verifyChain([]*x509.Certificate{by.cert}, x509.VerifyOptions{Roots: cas}); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the issuer: %w", err)
	}
	return b.CAs[0], nil
}
