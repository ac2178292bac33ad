package admission

import (
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

// Validity of certificates, and the tolerated difference between clocks.
const (
	caLife   = 10 * 365 * 24 * time.Hour
	certLife = 365 * 24 * time.Hour
	skew     = time.Hour
)

// Pair is a certificate and its private key, in PEM.
type Pair struct{ Cert, Key []byte }

// CA is the certificate authority of one cluster.
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
		MaxPathLenZero:        true, // signs servers only, no other CAs
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	pair, err := sign(template, nil, nil)
	if err != nil {
		return nil, err
	}
	return ParseCA(pair)
}

// ParseCA parses the result of [CA.Pair].
func ParseCA(p Pair) (*CA, error) {
	both, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the CA's certificate and key: %w", err)
	}
	key, ok := both.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !both.Leaf.IsCA {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate of %s is not a CA of bourse", bourse.Quoted(both.Leaf.Subject.CommonName))
	}
	return &CA{cert: both.Leaf, key: key, pair: p}, nil
}

// Pair returns the CA's certificate, which every server has, and its key, which servers do
// not need.
func (c *CA) Pair() Pair { return c.pair }

// Issue creates a server's certificate, which is valid for a year. For a broker, hosts are
// the names and addresses by which clients without certificates reach it. For a worker,
// hosts may contain the [TagName] of its tag.
func (c *CA) Issue(who Identity, hosts []string, now time.Time) (Pair, error) {
	if err := who.Validate(); err != nil {
		return Pair{}, err
	}
	return c.issue(string(who.ID), []string{who.ServerName()}, hosts, who.Role, now)
}

// IssueOther creates the certificate of a server outside of the cluster, such as NATS,
// which is valid for a year. Clients reach it at hosts. It gives no access to the cluster's
// servers.
func (c *CA) IssueOther(name string, hosts []string, now time.Time) (Pair, error) {
	if len(hosts) == 0 {
		return Pair{}, bourse.Errorf(bourse.CodeInvalid, "the certificate of %s would name no host", bourse.Quoted(name))
	}
	return c.issue(name, nil, hosts, "", now)
}

func (c *CA) issue(name string, names, hosts []string, role bourse.Role, now time.Time) (Pair, error) {
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
		case h == "" || strings.HasSuffix(strings.TrimSuffix(strings.ToLower(h), "."), domain): // the host would be a second identity
			return Pair{}, bourse.Errorf(bourse.CodeInvalid, "host %s cannot be in a certificate", bourse.Quoted(h))
		default:
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return sign(template, c.cert, c.key)
}

// sign creates a key and its certificate, signed by the parent or, without one, by itself.
func sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, bourse.Errorf(bourse.CodeInternal, "make a key: %w", err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, bourse.Errorf(bourse.CodeInternal, "make a serial number: %w", err)
	}
	if parent == nil {
		parent, by = template, key
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		return Pair{}, bourse.Errorf(bourse.CodeInvalid, "make the certificate of %s: %w", template.Subject.CommonName, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, bourse.Errorf(bourse.CodeInternal, "write a key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}
