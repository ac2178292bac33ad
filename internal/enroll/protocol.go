package enroll

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// The paths of this protocol in a broker's API.
const (
	PathCA    = "/cluster/ca"    // GET the CA's certificate, without credentials; callers compare its fingerprint
	PathJoin  = "/cluster/join"  // POST a [Request]; get a [Reply]
	PathRenew = "/cluster/renew" // POST a certificate request in DER, with the current certificate; get a [Renewed]
)

// Request is a host's request for the certificates of its servers.
type Request struct {
	ID      string          `json:"id"` // the invitation's ID
	Secret  string          `json:"secret"`
	Host    bourse.WorkerID `json:"host"`
	Region  bourse.Region   `json:"region,omitempty"`  // "" means the invitation's region or, if it has none, the broker's
	Address string          `json:"address,omitempty"` // IP address at which clients reach the host's broker, if it has one
	Servers []Server        `json:"servers"`
}

// Server is one of the host's servers.
type Server struct {
	Role    bourse.Role `json:"role"`
	Request []byte      `json:"request"` // certificate request in DER
}

// digest returns a digest of the roles and public keys in a request.
func (r *Request) digest() []byte {
	h := sha256.New()
	for _, s := range r.Servers {
		h.Write([]byte(s.Role))
		key := s.Request
		if r, err := x509.ParseCertificateRequest(s.Request); err == nil {
			key = r.RawSubjectPublicKeyInfo
		}
		_ = binary.Write(h, binary.BigEndian, int64(len(key))) // writing to a hash never fails
		h.Write(key)
	}
	return h.Sum(nil)
}

// Validate checks that a request is well-formed. Errors: invalid.
func (r *Request) Validate() error {
	if err := r.Host.Validate(); err != nil {
		return err
	}
	for _, role := range bourse.ServerRoles() {
		if strings.HasSuffix(string(r.Host), "-"+string(role)) { // this could be the name of another host's broker or proxy
			return bourse.Errorf(bourse.CodeInvalid, "the name %s is reserved for the %s of a host: choose another name", r.Host, role)
		}
	}
	if r.Region != "" {
		if err := r.Region.Validate(); err != nil {
			return err
		}
	}
	if r.Address != "" {
		if a, err := netip.ParseAddr(r.Address); err != nil || a.IsUnspecified() || a.IsMulticast() {
			return bourse.Errorf(bourse.CodeInvalid, "%s is not the IP address of a host", bourse.Quoted(r.Address))
		}
	}
	if len(r.Servers) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "a host needs at least one server")
	}
	seen := map[bourse.Role]bool{}
	for _, s := range r.Servers {
		if !slices.Contains(bourse.ServerRoles(), s.Role) || seen[s.Role] {
			return bourse.Errorf(bourse.CodeInvalid, "the role %s is unknown or listed twice", bourse.Quoted(string(s.Role)))
		}
		seen[s.Role] = true
	}
	return nil
}

// ServerName returns the name of one of a host's servers. A worker has the host's name.
// The names of other servers consist of the host's name and the role.
func ServerName(host bourse.WorkerID, role bourse.Role) bourse.WorkerID {
	if role == bourse.RoleWorker {
		return host
	}
	return host + "-" + bourse.WorkerID(role)
}

// Reply contains the credentials and settings that a host needs to join the cluster.
type Reply struct {
	Cluster      string                 `json:"cluster"`
	Region       bourse.Region          `json:"region"`       // the host's region
	CA           []byte                 `json:"ca"`           // PEM
	Certificates map[bourse.Role][]byte `json:"certificates"` // PEM
	GossipKey    []byte                 `json:"gossip_key,omitempty"`
	Join         []string               `json:"join"` // gossip addresses of some of the cluster's members
	NATS         []string               `json:"nats,omitempty"`

	// Tokens and SecretsKey are set only if the host runs a broker.
	Tokens     []byte `json:"tokens,omitempty"`
	SecretsKey []byte `json:"secrets_key,omitempty"`
}

// Renewed is the reply to a request for a renewed certificate.
type Renewed struct {
	CA          []byte `json:"ca"`          // PEM
	Certificate []byte `json:"certificate"` // PEM
}

// hostsOf returns the host names and addresses in a server's certificate, except the DNS name of
// the server's identity. They are copied to the renewed certificate.
func hostsOf(cert *x509.Certificate, who admission.Identity) []string {
	hosts := slices.DeleteFunc(slices.Clone(cert.DNSNames), func(name string) bool { return name == who.ServerName() })
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// Reissue creates a new key for a server, and a certificate with the names and addresses of its old certificate. It
// returns the certificate followed by the key, in PEM.
func Reissue(issuer *admission.CA, old *x509.Certificate, now time.Time) ([]byte, error) {
	who, err := admission.IdentityOf(old)
	if err != nil {
		return nil, err
	}
	pair, err := issuer.Issue(who, hostsOf(old, who), now)
	return pair.PEM(), err
}
