package admission

import (
	"bytes"
	"path/filepath"

	"github.com/bourse-dev/bourse"
)

// Dir is a directory of credentials. A server uses those of its files that concern it.
type Dir string

// CA returns the path of the CA's certificate, in PEM. There may be several, one after the
// other.
func (d Dir) CA() string { return filepath.Join(string(d), "ca.pem") }

// CAKey returns the path of the CA's key. Servers do not need it.
func (d Dir) CAKey() string { return filepath.Join(string(d), "ca.key") }

// Server returns the path of a server's certificate and key, one after the other in PEM.
func (d Dir) Server(name bourse.WorkerID) string {
	return filepath.Join(string(d), string(name)+".pem")
}

// Issuer returns the path of an issuer's certificate and key. A broker that has it admits
// hosts and renews certificates.
func (d Dir) Issuer() string { return filepath.Join(string(d), "issuer.pem") }

// GossipKey returns the path of the key that encrypts the membership.
func (d Dir) GossipKey() string { return filepath.Join(string(d), "gossip.key") }

// Tokens returns the path of the tokens that brokers accept.
func (d Dir) Tokens() string { return filepath.Join(string(d), "tokens") }

// SecretsKey returns the path of the keys that encrypt apps' secrets, for brokers.
func (d Dir) SecretsKey() string { return filepath.Join(string(d), "secrets.key") }

// PEM returns the content of a file with both the certificate and the key.
func (p Pair) PEM() []byte { return append(bytes.Clone(p.Cert), p.Key...) }
