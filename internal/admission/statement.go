package admission

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// statements is a prefix of the signed bytes. It ensures that a signature of a statement is not
// valid for any other kind of data.
const statements = "bourse statement\x00"

// Sign signs a statement that this server makes about itself, with the key of its certificate.
func (c *Credentials) Sign(statement []byte) ([]byte, error) {
	key, ok := c.Get().cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the key of the certificate cannot sign")
	}
	message := append([]byte(statements), statement...)
	var options crypto.SignerOpts = crypto.Hash(0)
	if _, whole := key.Public().(ed25519.PublicKey); !whole {
		digest := sha256.Sum256(message)
		message, options = digest[:], crypto.SHA256
	}
	signature, err := key.Sign(rand.Reader, message, options)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "sign with the key of the certificate: %w", err)
	}
	return signature, nil
}

// Verify reports whether signature is a valid signature of statement, made with the key of cert.
func Verify(cert *x509.Certificate, statement, signature []byte) bool {
	var by x509.SignatureAlgorithm
	switch cert.PublicKeyAlgorithm {
	case x509.ECDSA:
		by = x509.ECDSAWithSHA256
	case x509.Ed25519:
		by = x509.PureEd25519
	case x509.RSA:
		by = x509.SHA256WithRSA
	default:
		return false
	}
	return cert.CheckSignature(by, append([]byte(statements), statement...), signature) == nil
}

// tagDomain is the suffix of the DNS name that represents a worker's tag in its certificate. The
// first label of that name is the tag. A certificate contains such a name only if the tag cannot be
// derived from the worker's ID.
const tagDomain = ".tag" + domain

// TagName returns the DNS name that represents a tag in a worker's certificate.
func TagName(tag bourse.WorkerTag) string { return tag.String() + tagDomain }

// statesTag reports whether name has the form of a TagName.
func statesTag(name string) bool {
	text, ok := strings.CutSuffix(name, tagDomain)
	n, err := strconv.ParseUint(text, 16, 24)
	return ok && err == nil && TagName(bourse.WorkerTag(n)) == name
}

// HasTag reports whether this server's certificate contains the [TagName] of the given tag.
func (c *Credentials) HasTag(tag bourse.WorkerTag) bool { return HasTag(c.Get().cert.Leaf, tag) }

// HasTag reports whether a worker's certificate contains the [TagName] of the given tag.
func HasTag(cert *x509.Certificate, tag bourse.WorkerTag) bool {
	return slices.ContainsFunc(cert.DNSNames, func(name string) bool { return strings.EqualFold(name, TagName(tag)) })
}
