package admission

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Validity periods of certificates, and the maximum difference between servers' clocks.
const (
	caLife     = 10 * 365 * 24 * time.Hour
	issuerLife = 365 * 24 * time.Hour
	certLife   = 365 * 24 * time.Hour
	skew       = time.Hour
)

// RenewedLife is the validity period of certificates that servers renew automatically.
const RenewedLife = 7 * 24 * time.Hour

// Pair is a certificate and its private key, in PEM.
type Pair struct{ Cert, Key []byte }

// CA is a cluster's certificate authority, or an issuer: an intermediate authority that signs
// servers' certificates on behalf of the CA.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pair Pair
}

// NewCA creates a cluster's CA, which is valid for ten years.
func NewCA(cluster string, now time.Time) (*CA, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "bourse CA " + cluster},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(caLife),
		IsCA:                  true,
		MaxPathLen:            1, // may sign servers and issuers
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	pair, err := create(template, nil)
	if err != nil {
		return nil, err
	}
	return ParseCA(pair)
}

// NewIssuer creates an issuer, which is valid for a year. Brokers use it to sign the certificates
// of servers that join, so the CA's own key does not have to be on any server.
func (c *CA) NewIssuer(now time.Time) (*CA, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: strings.Replace(c.cert.Subject.CommonName, " CA ", " issuer ", 1)},
		NotBefore:             now.Add(-skew),
		NotAfter:              earlier(now.Add(issuerLife), c.cert.NotAfter),
		IsCA:                  true,
		MaxPathLenZero:        true, // may sign servers only
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	pair, err := create(template, c)
	if err != nil {
		return nil, err
	}
	return ParseCA(pair)
}

// Expires returns the time when the CA's own certificate expires.
func (c *CA) Expires() time.Time { return c.cert.NotAfter }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// ParseCA parses a CA's certificate and key, as [CA.Pair] returns them. Errors: invalid.
func ParseCA(p Pair) (*CA, error) {
	both, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the CA's certificate and key: %w", err)
	}
	key, ok := both.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !both.Leaf.IsCA {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate of %s is not a Bourse CA", bourse.Quoted(both.Leaf.Subject.CommonName))
	}
	return &CA{cert: both.Leaf, key: key, pair: p}, nil
}

// Pair returns the CA's certificate, which every server needs, and its key, which must be kept
// secret.
func (c *CA) Pair() Pair { return c.pair }

// Issue creates a key and a certificate for a server. The certificate is valid for a year or, if c is an issuer, for
// [RenewedLife]. For a broker, hosts contains the names and addresses that clients without certificates use to reach
// it. For a worker, hosts may contain the [TagName] of the worker's tag. Errors: invalid.
func (c *CA) Issue(who Identity, hosts []string, now time.Time) (Pair, error) {
	if err := who.Validate(); err != nil {
		return Pair{}, err
	}
	template, err := newTemplate(string(who.ID), []string{who.ServerName()}, hosts, who.Role, now)
	if err != nil {
		return Pair{}, err
	}
	if c.IsIssuer() {
		template.NotAfter = earlier(now.Add(RenewedLife), c.cert.NotAfter)
	}
	return create(template, c)
}

// IsIssuer reports whether c is an issuer rather than a cluster's CA.
func (c *CA) IsIssuer() bool { return c.cert.MaxPathLenZero }

// Sign creates a certificate, valid for [RenewedLife], for a server that has created its own key. request is a
// certificate request in DER; Sign uses only its key. Errors: invalid.
func (c *CA) Sign(request []byte, who Identity, hosts []string, now time.Time) (cert []byte, err error) {
	r, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = r.CheckSignature()
	}
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate request: %w", err)
	}
	if key, ok := r.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate request: want an ECDSA key on the curve P-256")
	}
	if err := who.Validate(); err != nil {
		return nil, err
	}
	template, err := newTemplate(string(who.ID), []string{who.ServerName()}, hosts, who.Role, now)
	if err != nil {
		return nil, err
	}
	template.NotAfter = earlier(now.Add(RenewedLife), c.cert.NotAfter)
	return c.sign(template, r.PublicKey)
}

// IssueOther creates a key and a certificate, valid for a year, for a server that is not a member
// of the cluster, such as a NATS server. hosts contains the names and addresses that clients use to
// reach it. The certificate does not give access to the cluster's servers. Errors: invalid.
func (c *CA) IssueOther(name string, hosts []string, now time.Time) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, bourse.Errorf(bourse.CodeInvalid, "the certificate of %s needs at least one host name or address", bourse.Quoted(name))
	}
	template, err := newTemplate(name, nil, hosts, "", now)
	if err != nil {
		return Pair{}, err
	}
	return create(template, c)
}

func newTemplate(name string, names, hosts []string, role bourse.Role, now time.Time) (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(certLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    names,
	}
	for _, h := range hosts {
		ip := net.ParseIP(h)
		switch {
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case role == bourse.RoleWorker && statesTag(h):
			template.DNSNames = append(template.DNSNames, h)
		case h == "" || strings.HasSuffix(strings.TrimSuffix(strings.ToLower(h), "."), domain): // such a host would be a second identity
			return nil, bourse.Errorf(bourse.CodeInvalid, "host %s cannot be in a certificate", bourse.Quoted(h))
		default:
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return template, nil
}

// create creates a key and its certificate. The certificate is signed by the given CA or, if by is
// nil, self-signed.
func create(template *x509.Certificate, by *CA) (Pair, error) {
	key, private, err := NewKey()
	if err != nil {
		return Pair{}, err
	}
	if by == nil {
		by = &CA{cert: template, key: key}
	}
	cert, err := by.sign(template, &key.PublicKey)
	return Pair{Cert: cert, Key: private}, err
}

// NewKey creates a server's key and returns it, both as a value and in PEM.
func NewKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "create a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "encode a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// sign creates a certificate in PEM. If c is an issuer, sign appends the issuer's own certificate,
// because other servers know only the CA that signed the issuer.
func (c *CA) sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	var err error
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "create a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, public, c.key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "create the certificate of %s: %w", template.Subject.CommonName, err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if c.IsIssuer() {
		cert = append(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})...)
	}
	return cert, nil
}
