package admission

import (
	"bytes"
	"path/filepath"

	"github.com/bourse-dev/bourse"
)

// Dir is a directory of credentials. A server uses only the files that it needs.
type Dir string

// CA returns the path of the CA file, which contains the CA's certificate in PEM, or several
// certificates (see [Bundle]).
func (d Dir) CA() string { return filepath.Join(string(d), "ca.pem") }

// CAKey returns the path of the CA's key, which servers do not need.
func (d Dir) CAKey() string { return filepath.Join(string(d), "ca.key") }

// Server returns the path of a file with a server's certificate followed by its key, in PEM.
func (d Dir) Server(name bourse.WorkerID) string {
	return filepath.Join(string(d), string(name)+".pem")
}

// Issuer returns the path of a file with an issuer's certificate followed by its key. A broker
// with this file admits hosts and renews certificates.
func (d Dir) Issuer() string { return filepath.Join(string(d), "issuer.pem") }

// GossipKey returns the path of the file with the keys that encrypt gossip messages.
func (d Dir) GossipKey() string { return filepath.Join(string(d), "gossip.key") }

// Tokens returns the path of the file with the tokens that brokers accept.
func (d Dir) Tokens() string { return filepath.Join(string(d), "tokens") }

// SecretsKey returns the path of the file with the keys that brokers use to encrypt apps' secrets.
func (d Dir) SecretsKey() string { return filepath.Join(string(d), "secrets.key") }

// PEM returns the certificate followed by the key, as they are stored in one file.
func (p Pair) PEM() []byte { return append(bytes.Clone(p.Cert), p.Key...) }
