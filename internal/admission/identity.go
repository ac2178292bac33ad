package admission

import (
	"crypto/x509"
	"strings"

	"github.com/bourse-dev/bourse"
)

// domain is the suffix of a server's DNS name in a certificate. These names are never resolved;
// .internal is reserved for private use. They are DNS names rather than URIs, so that TLS clients
// verify them.
const domain = ".bourse.internal"

// Identity is a server's name in the cluster and its role. The DNS name
// "mad-1.worker.bourse.internal" in a certificate identifies the worker mad-1.
type Identity struct {
	ID   bourse.WorkerID
	Role bourse.Role
}

// Validate checks that the ID and the role can be part of a DNS name. Errors: invalid.
func (i Identity) Validate() error {
	if err := i.ID.Validate(); err != nil {
		return err
	}
	if bourse.WorkerID(i.Role).Validate() != nil || i.Role == "tag" { // see tagDomain
		return bourse.Errorf(bourse.CodeInvalid, "role %s is not valid in a certificate", bourse.Quoted(string(i.Role)))
	}
	return nil
}

// ServerName returns the DNS name of i.
func (i Identity) ServerName() string { return string(i.ID) + "." + string(i.Role) + domain }

// IdentityOf returns the identity of the server that a verified certificate names. Errors:
// forbidden if the certificate does not name exactly one server.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	var found []Identity
	for _, name := range cert.DNSNames {
		rest, ok := strings.CutSuffix(strings.ToLower(name), domain) // verification also ignores case
		if !ok || strings.HasSuffix(strings.ToLower(name), tagDomain) {
			continue
		}
		id, role, _ := strings.Cut(rest, ".")
		i := Identity{ID: bourse.WorkerID(id), Role: bourse.Role(role)}
		if err := i.Validate(); err != nil {
			return Identity{}, bourse.Errorf(bourse.CodeForbidden, "the certificate names %s: %w", bourse.Quoted(name), err)
		}
		found = append(found, i)
	}
	if len(found) != 1 {
		return Identity{}, bourse.Errorf(bourse.CodeForbidden, "the certificate names %d servers of the cluster: it must name exactly one", len(found))
	}
	return found[0], nil
}
