package admission

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Files contains the paths of a server's credentials, which are PEM files. CA contains the
// cluster's CA, and Pair contains the server's certificate and key.
type Files struct{ CA, Pair string }

// Credentials contains a server's certificate and key, and its cluster's CA. If they come from
// files, [Credentials.Look] reloads them.
type Credentials struct {
	*Live[*material]
	self     Identity
	removals removals

	mu   sync.Mutex
	used [][]byte // the result of Used
}

// material is one immutable version of the credentials.
type material struct {
	trusted Bundle
	pool    *x509.CertPool // the CAs in trusted
	signers *x509.CertPool // all certificates in trusted
	cert    tls.Certificate
	chain   []*x509.Certificate // the certificate, followed by those of its issuers
	self    Identity
}

// Load reads credentials from files. Errors: invalid.
func Load(f Files) (*Credentials, error) {
	c := &Credentials{}
	var err error
	c.Live, err = NewLive([]string{f.CA, f.Pair}, f.read, func(m *material) error {
		if m.self != c.self {
			return bourse.Errorf(bourse.CodeInvalid, "the certificate belongs to %s %s, not to %s %s", m.self.Role, m.self.ID, c.self.Role, c.self.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.self = c.Get().self
	own, _ := c.Own()
	c.used = [][]byte{own}
	return c, nil
}

// Look reloads the files if they have changed; see [Live.Look]. If a CA was removed, Look also
// closes the connections of clients with certificates from that CA.
func (c *Credentials) Look() (changed bool, err error) {
	before := c.CAs()
	if changed, err = c.Live.Look(); changed {
		c.mu.Lock()
		own, _ := c.Own()
		c.used = append(c.used, own)
		c.mu.Unlock()
	}
	if changed && !slices.Equal(c.CAs(), before) {
		trusted := &c.Get().trusted
		c.removals.closeIf(func(chain []*x509.Certificate) bool { return !trusted.Issued(chain) })
	}
	return changed, err
}

func (f *Files) read() (*material, error) {
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the CA: %w", err)
	}
	pair, err := os.ReadFile(f.Pair)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the certificate and its key: %w", err)
	}
	return newMaterial(ca, Pair{Cert: pair, Key: pair})
}

// NewCredentials parses credentials in PEM. The certificate must be signed by one of the CAs and
// name exactly one server. Errors: invalid.
func NewCredentials(ca []byte, pair Pair) (*Credentials, error) {
	m, err := newMaterial(ca, pair)
	if err != nil {
		return nil, err
	}
	return &Credentials{Live: unchanging(m), self: m.self}, nil
}

func newMaterial(ca []byte, pair Pair) (*material, error) {
	trusted, err := ParseBundle(ca)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate and its key: %w", err)
	}
	self, err := IdentityOf(cert.Leaf)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	chain, err := x509.ParseCertificates(slices.Concat(cert.Certificate...))
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificates of %s and its issuers: %w", self.ID, err)
	}
	m := &material{trusted: trusted, cert: cert, chain: chain, self: self}
	m.pool, m.signers = trusted.pools()
	// Refuse an expired certificate, because every other server would also refuse it.
	if err := verifyChain(chain, x509.VerifyOptions{Roots: m.pool}); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the certificate of %s: %w", self.ID, err)
	}
	return m, nil
}

// Used returns the certificates that the server has used since its start, in DER, each followed by
// those of its issuers.
func (c *Credentials) Used() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.used)
}

// CAs returns the fingerprints of the CAs that the server trusts.
func (c *Credentials) CAs() []string { return c.Get().trusted.IDs() }

// Issued reports whether a CA that the server trusts issued the first certificate in chain, either
// directly or through the issuers that follow it in chain.
func (c *Credentials) Issued(chain []*x509.Certificate) bool { return c.Get().trusted.Issued(chain) }

// ByFirstCA reports whether the server's certificate was issued by [Credentials.FirstCA].
func (c *Credentials) ByFirstCA() bool {
	m := c.Get()
	return (&Bundle{CAs: m.trusted.CAs[:1]}).Issued(m.chain)
}

// FirstCA returns the first CA that the server trusts. This CA issues the servers' certificates.
func (c *Credentials) FirstCA() *x509.Certificate { return c.Get().trusted.CAs[0] }

// Self returns the server's identity, according to its certificate.
func (c *Credentials) Self() Identity { return c.self }

// Leaf returns the server's own certificate. The caller must not change it.
func (c *Credentials) Leaf() *x509.Certificate { return c.Get().cert.Leaf }

// Expires returns the time when the server's certificate expires.
func (c *Credentials) Expires() time.Time { return c.Get().cert.Leaf.NotAfter }

// Names returns the host names in the server's certificate that clients use to reach the server.
func (c *Credentials) Names() []string {
	return slices.DeleteFunc(slices.Clone(c.Get().cert.Leaf.DNSNames), func(name string) bool {
		return strings.HasSuffix(strings.ToLower(name), domain)
	})
}

// Server returns the TLS configuration of a server that accepts connections only from the
// cluster's servers with one of the given roles.
func (c *Credentials) Server(roles ...bourse.Role) *tls.Config {
	return c.serving(tls.RequireAndVerifyClientCert, func(peer Identity) error {
		if !slices.Contains(roles, peer.Role) {
			return bourse.Errorf(bourse.CodeForbidden, "%s %s may not connect to this server", peer.Role, peer.ID)
		}
		return nil
	})
}

// Public returns the TLS configuration of a server whose clients use tokens instead of
// certificates. The cluster's servers may nevertheless present their certificates; see [Require].
func (c *Credentials) Public() *tls.Config {
	return c.serving(tls.VerifyClientCertIfGiven, func(Identity) error { return nil })
}

// serving returns the TLS configuration of a server. Each handshake uses the current credentials,
// and fails if the client's certificate belongs to a removed server or if allow returns an error
// for its identity.
func (c *Credentials) serving(auth tls.ClientAuthType, allow func(Identity) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			m := c.Get()
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, ClientAuth: auth, ClientCAs: m.pool,
				NextProtos: []string{"h2", "http/1.1"},
				// A session ticket could outlive the CA that signed the client's certificate.
				SessionTicketsDisabled: true,
				VerifyConnection: func(s tls.ConnectionState) error {
					if len(s.PeerCertificates) == 0 {
						return nil
					}
					peer, err := IdentityOf(s.PeerCertificates[0])
					if err != nil {
						return err
					}
					if err := allow(peer); err != nil {
						return err
					}
					if err := c.removals.allow(s.PeerCertificates, hello.Conn); err != nil {
						return err
					}
					if now := c.Get(); now != m && !now.trusted.Issued(s.PeerCertificates) {
						return bourse.Errorf(bourse.CodeForbidden, "the CA of %s %s has just been removed", peer.Role, peer.ID)
					}
					return nil
				},
			}, nil
		},
	}
}

// Require wraps h so that it serves only callers whose certificate belongs to one of the cluster's
// servers with one of the given roles. Other callers get status 403. Requests without TLS are
// served; [CheckListen] determines on which addresses they are allowed.
func Require(h http.Handler, roles ...bourse.Role) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			if len(r.TLS.PeerCertificates) == 0 {
				refuse(w, http.StatusForbidden, bourse.CodeForbidden, "only servers of the cluster have access here")
				return
			}
			peer, err := IdentityOf(r.TLS.PeerCertificates[0])
			if err != nil || !slices.Contains(roles, peer.Role) {
				refuse(w, http.StatusForbidden, bourse.CodeForbidden, "only other servers of the cluster have access here")
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Client returns the current TLS configuration for a connection to another server of the
// cluster. Call it for each connection, and set ServerName to that server's name.
func (c *Credentials) Client() *tls.Config {
	m := c.Get()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, RootCAs: m.pool,
		VerifyConnection: func(s tls.ConnectionState) error { return c.removals.allow(s.PeerCertificates, nil) },
	}
}

// AnyServer returns the TLS configuration for a connection to a server with one of the given roles,
// regardless of the server's name and address. The server's certificate must be issued by a CA in
// pool.
func AnyServer(pool *x509.CertPool, roles ...bourse.Role) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the certificate, for a role instead of an address
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := verifyChain(s.PeerCertificates, x509.VerifyOptions{Roots: pool}); err != nil {
				return err
			}
			who, err := IdentityOf(s.PeerCertificates[0])
			if err == nil && !slices.Contains(roles, who.Role) {
				err = bourse.Errorf(bourse.CodeForbidden, "%s %s has none of the roles %v", who.Role, who.ID, roles)
			}
			return err
		},
	}
}

// RenewalDue reports whether at least half of the certificate's validity period has passed. It
// returns false for certificates that servers do not renew automatically.
func (c *Credentials) RenewalDue(now time.Time) bool {
	leaf := c.Get().cert.Leaf
	validity := leaf.NotAfter.Sub(leaf.NotBefore)
	return validity <= RenewedLife+skew && now.After(leaf.NotBefore.Add(validity/2))
}
