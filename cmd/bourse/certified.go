package main

import (
	"context"
	"crypto/x509"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// Delays of the stage that records certificates.
const (
	recordEvery = time.Minute     // maximum time between two checks of this broker's own certificate
	recordRetry = 5 * time.Second // delay after a failed write to the view
)

// recordStage returns the stage in which a broker records in the view which brokers and proxies
// have certificates, so that they are listed even when they are down. It records each certificate
// once.
func (s *server) recordStage() stage {
	return stage{name: "recording", run: func(ctx context.Context) error {
		if s.creds == nil { // without certificates, a server's name proves nothing
			<-ctx.Done()
			return nil
		}
		var recorded []inventory.CertifiedMember
		for {
			changed, wait := s.changed(), recordEvery
			seen := certifiedMembers(s.self, s.creds.Leaf(), s.members(), s.certificateOf)
			if !slices.Equal(seen, recorded) {
				if err := s.record(ctx, seen); err != nil && ctx.Err() == nil {
					s.log.Warn("record certificates in view failed, will retry", "err", err)
					wait = recordRetry
				} else {
					recorded = seen
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
			case <-time.After(wait):
			}
		}
	}}
}

// record publishes a row for each member. Rows that the view already contains are not written
// again.
func (s *server) record(ctx context.Context, seen []inventory.CertifiedMember) error {
	rows := make([]wire.Row, len(seen))
	for i := range seen {
		rows[i] = inventory.CertifiedRow(&seen[i])
	}
	_, err := s.replica.Publish(ctx, rows...)
	return err
}

// certificateOf returns the certificate that another member used to prove its identity,
// or nil if there is none.
func (s *server) certificateOf(m bourse.Member) *x509.Certificate {
	for _, group := range s.groups {
		if key, ok := group.KeyOf(m).(certified); ok {
			return key.cert
		}
	}
	return nil
}

// certifiedMembers returns all brokers and proxies with a known certificate, if self is the broker
// that must record them. This is the broker with the lowest ID; for any other, certifiedMembers
// returns nil. During a partition, one broker on each side records the members there.
func certifiedMembers(self bourse.Member, own *x509.Certificate, members []bourse.Member, certificateOf func(bourse.Member) *x509.Certificate) []inventory.CertifiedMember {
	if slices.ContainsFunc(members, func(m bourse.Member) bool { return m.Role == bourse.RoleBroker && m.ID < self.ID }) {
		return nil
	}
	out := []inventory.CertifiedMember{certifiedMember(self, own)}
	for _, m := range members {
		if m.ID == self.ID || m.Role == bourse.RoleWorker {
			continue
		}
		if cert := certificateOf(m); cert != nil {
			out = append(out, certifiedMember(m, cert))
		}
	}
	return out
}

func certifiedMember(m bourse.Member, cert *x509.Certificate) inventory.CertifiedMember {
	return inventory.CertifiedMember{ID: m.ID, Role: m.Role, Region: m.Region, IssuedAt: admission.IssuedAt(cert), ExpiresAt: cert.NotAfter}
}
