package admission

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Files names the PEM files of a server's credentials.
type Files struct{ CA, Cert, Key string }

// Credentials are a server's certificate and the CA of its cluster. Those that
// were read from files follow them: see [Credentials.Look].
type Credentials struct {
	*Live[*material]
	self Identity
}

// material is what credentials are at one time. It is never changed.
type material struct {
	pool *x509.CertPool
	cert tls.Certificate
	self Identity
}

// Load reads credentials. What is wrong with the files is CodeInvalid.
func Load(f Files) (*Credentials, error) {
	c := &Credentials{}
	var err error
	c.Live, err = NewLive([]string{f.CA, f.Cert, f.Key}, f.read, func(m *material) error {
		if m.self != c.self {
			return bourse.Errorf(bourse.CodeInvalid, "the certificate is that of %s %s, not of %s %s", m.self.Role, m.self.ID, c.self.Role, c.self.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.self = c.Get().self
	return c, nil
}

func (f *Files) read() (*material, error) {
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the CA: %w", err)
	}
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the certificate: %w", err)
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the key: %w", err)
	}
	return newMaterial(ca, Pair{Cert: cert, Key: key})
}

// NewCredentials makes credentials of PEM texts. The certificate must be of
// the CA, or of one of several, and name one server; else it is CodeInvalid.
func NewCredentials(ca []byte, pair Pair) (*Credentials, error) {
	m, err := newMaterial(ca, pair)
	if err != nil {
		return nil, err
	}
	return &Credentials{Live: still(m), self: m.self}, nil
}

func newMaterial(ca []byte, pair Pair) (*material, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the CA holds no PEM certificate")
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate and its key: %w", err)
	}
	self, err := IdentityOf(cert.Leaf)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	// An expired one is refused by every other server, with an error there: a server
	// that starts with it would run and be of no use.
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate of %s: %w", self.ID, err)
	}
	return &material{pool: pool, cert: cert, self: self}, nil
}

// Self returns the identity in the certificate.
func (c *Credentials) Self() Identity { return c.self }

// Expires is when the certificate ends.
func (c *Credentials) Expires() time.Time { return c.Get().cert.Leaf.NotAfter }

// Names are the host names in the certificate by which clients call the server.
func (c *Credentials) Names() []string {
	return slices.DeleteFunc(slices.Clone(c.Get().cert.Leaf.DNSNames), func(name string) bool {
		return strings.HasSuffix(strings.ToLower(name), domain)
	})
}

// Server is the configuration of a server that takes only servers of the
// cluster with one of these roles.
func (c *Credentials) Server(roles ...bourse.Role) *tls.Config {
	return c.serving(func(config *tls.Config) {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.VerifyConnection = func(s tls.ConnectionState) error {
			peer, err := IdentityOf(s.PeerCertificates[0])
			if err != nil {
				return err
			}
			if !slices.Contains(roles, peer.Role) {
				return bourse.Errorf(bourse.CodeForbidden, "%s %s is not let in here", peer.Role, peer.ID)
			}
			return nil
		}
	})
}

// Public is the configuration of a server for clients without certificates:
// they bring tokens. A server of the cluster may show its own; see Require.
func (c *Credentials) Public() *tls.Config {
	return c.serving(func(config *tls.Config) { config.ClientAuth = tls.VerifyClientCertIfGiven })
}

// serving makes the configuration of a server, which uses what is current at
// each handshake.
func (c *Credentials) serving(adjust func(*tls.Config)) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := c.Get()
			config := &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, ClientCAs: m.pool,
				NextProtos: []string{"h2", "http/1.1"},
				// A ticket would outlive the CA by which it was given.
				SessionTicketsDisabled: true,
			}
			adjust(config)
			return config, nil
		},
	}
}

// Require lets only servers of the cluster with one of these roles through to
// h, by the certificate that they have shown; others get 403. A connection in
// the clear is let through: where that is allowed is decided by CheckListen.
func Require(h http.Handler, roles ...bourse.Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			if len(r.TLS.PeerCertificates) == 0 {
				refuse(w, http.StatusForbidden, bourse.CodeForbidden, "only servers of the cluster are let in here")
				return
			}
			peer, err := IdentityOf(r.TLS.PeerCertificates[0])
			if err != nil || !slices.Contains(roles, peer.Role) {
				refuse(w, http.StatusForbidden, bourse.CodeForbidden, "only other servers of the cluster are let in here")
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Client is the present configuration of a client of other servers of the
// cluster; it is called before each connection. The caller sets ServerName to
// the name of the server that it wants to reach.
func (c *Credentials) Client() *tls.Config {
	m := c.Get()
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, RootCAs: m.pool}
}
