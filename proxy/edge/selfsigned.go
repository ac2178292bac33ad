package edge

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// selfSigned creates self-signed certificates. They all share a key that exists only in memory. The
// key does not have to be persisted, because clients cannot verify such certificates anyway.
type selfSigned struct {
	mu     sync.Mutex
	key    *ecdsa.PrivateKey
	byName map[string]*tls.Certificate
}

const (
	maxSelfSigned  = 1024 // maximum number of names; when it is exceeded, all certificates are discarded
	selfSignedLife = 90 * 24 * time.Hour
)

// get returns the certificate for a host name. An empty name means localhost.
func (s *selfSigned) get(name string) (*tls.Certificate, error) {
	name = cmp.Or(name, "localhost")
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if cert := s.byName[name]; cert != nil && now.Before(cert.Leaf.NotAfter.Add(-selfSignedLife/3)) {
		return cert, nil
	}
	if s.key == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInternal, "generate key: %w", err)
		}
		s.key = key
	}
	cert, err := signSelf(name, s.key, now)
	if err != nil {
		return nil, err
	}
	if s.byName == nil || len(s.byName) >= maxSelfSigned {
		s.byName = map[string]*tls.Certificate{}
	}
	s.byName[name] = cert
	return cert, nil
}

func signSelf(name string, key *ecdsa.PrivateKey, now time.Time) (*tls.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "generate serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{"bourse, self-signed"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "sign a certificate for %s: %w", bourse.Quoted(name), err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "parse self-signed certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
