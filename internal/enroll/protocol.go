package enroll

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
)

// The paths on a broker's API.
const (
	PathCA    = "/cluster/ca"    // GET, without credentials: the CA's certificate, which callers compare with a fingerprint
	PathJoin  = "/cluster/join"  // POST a [Request], get a [Reply]
	PathRenew = "/cluster/renew" // POST a certificate request in DER with the current certificate, get a [Renewed]
)

// Request asks for the certificates of a host's servers.
type Request struct {
	ID      string          `json:"id"` // of the invitation
	Secret  string          `json:"secret"`
	Host    bourse.WorkerID `json:"host"`
	Region  bourse.Region   `json:"region,omitempty"`  // "": that of the invitation, or the broker's
	Address string          `json:"address,omitempty"` // IP address at which clients reach the host's broker, if it has one
	Servers []Server        `json:"servers"`
}

// Server is one server of the host.
type Server struct {
	Role    bourse.Role `json:"role"`
	Request []byte      `json:"request"` // certificate request in DER
}

// digest identifies the keys of a request.
func (r *Request) digest() []byte {
	h := sha256.New()
	for _, s := range r.Servers {
		h.Write([]byte(s.Role))
		key := s.Request
		if r, err := x509.ParseCertificateRequest(s.Request); err == nil {
			key = r.RawSubjectPublicKeyInfo
		}
		_ = binary.Write(h, binary.BigEndian, int64(len(key))) // a hash accepts all writes
		h.Write(key)
	}
	return h.Sum(nil)
}

// Validate checks the form of a request. Errors: invalid.
func (r *Request) Validate() error {
	if err := r.Host.Validate(); err != nil {
		return err
	}
	for _, role := range bourse.ServerRoles() {
		if strings.HasSuffix(string(r.Host), "-"+string(role)) { // it would be the name of another host's server
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
			return bourse.Errorf(bourse.CodeInvalid, "the role %s is unknown or given twice", bourse.Quoted(string(s.Role)))
		}
		seen[s.Role] = true
	}
	return nil
}

// ServerName returns the name of a host's server: a worker has the host's name, and the
// others add their role.
func ServerName(host bourse.WorkerID, role bourse.Role) bourse.WorkerID {
	if role == bourse.RoleWorker {
		return host
	}
	return host + "-" + bourse.WorkerID(role)
}

// Reply contains everything that a host needs to be part of the cluster.
type Reply struct {
	Cluster      string                 `json:"cluster"`
	Region       bourse.Region          `json:"region"`       // of the host
	CA           []byte                 `json:"ca"`           // PEM
	Certificates map[bourse.Role][]byte `json:"certificates"` // PEM
	GossipKey    []byte                 `json:"gossip_key,omitempty"`
	Join         []string               `json:"join"` // gossip addresses of some members
	NATS         []string               `json:"nats,omitempty"`

	// For brokers only.
	Tokens     []byte `json:"tokens,omitempty"`
	SecretsKey []byte `json:"secrets_key,omitempty"`
}

// Renewed is the reply to a renewal.
type Renewed struct {
	CA          []byte `json:"ca"`          // PEM
	Certificate []byte `json:"certificate"` // PEM
}

// hostsOf returns the names and addresses in a server's certificate, apart from its
// identity. A renewed certificate has the same ones.
func hostsOf(cert *x509.Certificate, who admission.Identity) []string {
	hosts := slices.DeleteFunc(slices.Clone(cert.DNSNames), func(name string) bool { return name == who.ServerName() })
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}
