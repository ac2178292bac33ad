package main

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/url"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/view/gossip"
)

// proofs are how members prove who they are by the certificates of the cluster.
type proofs struct {
	creds *admission.Credentials
	wire  *direct.Fabric
}

var _ gossip.Proofs = proofs{}

// Sign implements gossip.Proofs.
func (p proofs) Sign(statement []byte) ([]byte, error) { return p.creds.Sign(statement) }

// Key implements gossip.Proofs.
func (p proofs) Key(ctx context.Context, m bourse.Member) (gossip.Key, error) {
	cert, err := p.wire.Certificate(ctx, m)
	if err != nil {
		return nil, err
	}
	return certified{cert}, nil
}

// Names implements gossip.Proofs.
func (p proofs) Names(ctx context.Context, m bourse.Member) ([]string, error) {
	resp, err := p.wire.Call(ctx, m, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: gossip.PathSelf}, Header: http.Header{}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	self, err := gossip.ReadSelf(resp)
	return self.Names, err
}

// certified is the key of a certificate.
type certified struct{ cert *x509.Certificate }

// Verify implements gossip.Key.
func (c certified) Verify(statement, signature []byte) bool {
	return admission.Verify(c.cert, statement, signature)
}

// HasTag implements gossip.Key.
func (c certified) HasTag(tag bourse.WorkerTag) bool { return admission.HasTag(c.cert, tag) }

// renewing are a server's credentials, whose change its members have to see.
type renewing struct{ *server }

// Files implements admission.Watched.
func (r renewing) Files() []string { return r.creds.Files() }

// Look implements admission.Watched.
func (r renewing) Look() (bool, error) {
	changed, err := r.creds.Look()
	if changed {
		for _, group := range r.groups {
			group.Renew()
		}
	}
	return changed, err
}

// ownTag reports CodeFailedPrecondition for a worker whose tag the others would
// not believe.
func (s *server) ownTag() error {
	tag := s.self.Tag
	if s.creds == nil || tag == 0 || s.self.ID.TagRank(tag) < bourse.TagChoices || s.creds.HasTag(tag) {
		return nil
	}
	return bourse.Errorf(bourse.CodeFailedPrecondition, "tag %s of this worker was made by an earlier release and does not follow from its name: "+
		"add the DNS name %s to its certificate, beside the other one", tag, admission.TagName(tag))
}
