package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"os"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/wholefile"
	"github.com/bourse-dev/bourse/machinesapi"
)

// shareCA lets brokers replace the file that contains the cluster's CA.
func (s *server) shareCA() {
	s.shared[machinesapi.KeyCA] = &enroll.KeyFile{
		Path: s.config.Credentials.Files.CA, Look: renewing{s}.Look, InUse: s.creds.CAs,
		IDs: func(text []byte) ([]string, error) {
			b, err := admission.ParseBundle(text)
			return b.IDs(), err
		},
		Adopt: s.adoptCA,
	}
}

// adoptCA obtains a certificate from the first CA in the CA file, unless the server already has
// one. A broker first stores that CA's issuer, which signs such certificates.
func (s *server) adoptCA(ctx context.Context, in *enroll.KeyRequest, reply *enroll.KeyReply) error {
	reply.Signers = s.creds.Used()
	if err := s.adoptIssuer(in.Issuer); err != nil || s.creds.ByFirstCA() {
		return err
	}
	err := s.replaceCertificate(ctx, func(r *enroll.Renewal) error {
		fresh, err := admission.NewCredentials(r.CA, admission.Pair{Cert: r.PEM, Key: r.PEM})
		if err == nil && (!slices.Equal(fresh.CAs(), s.creds.CAs()) || !fresh.ByFirstCA()) {
			err = bourse.Errorf(bourse.CodeUnavailable, "the broker does not use the new CA yet")
		}
		return err
	})
	if err == nil {
		err = lookAt(renewing{s})
	}
	if err == nil && !s.creds.ByFirstCA() {
		err = bourse.Errorf(bourse.CodeUnavailable, "%s was changed by another program at the same time", s.config.Credentials.Files.Pair)
	}
	return err
}

// adoptIssuer stores an issuer, in PEM, if the first CA has certified it and this broker still
// uses another issuer. It does nothing on servers without an issuer.
func (s *server) adoptIssuer(issuer []byte) error {
	if len(s.deskFiles) == 0 {
		return nil
	}
	if _, err := admission.CheckIssuer(admission.CertPEM(s.creds.FirstCA()), issuer); err != nil {
		return nil //nolint:nilerr // the first CA is still the old one
	}
	path := s.deskFiles[0].Files()[0]
	if now, err := os.ReadFile(path); err == nil && bytes.Equal(now, issuer) {
		return nil
	}
	if err := wholefile.Write(path, issuer, 0o600); err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "write the issuer: %w", err)
	}
	return lookAt(s.deskFiles...)
}

// lookAt rereads files that have changed, so that their new contents take effect immediately.
func lookAt(files ...admission.Watched) error {
	for range 3 { // Look rereads a file only at the second call that finds the same change, see admission.Live
		for _, f := range files {
			if _, err := f.Look(); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkNATS returns failed_precondition if the NATS server's certificate was issued by the
// cluster's old CA, because servers will be unable to connect to the NATS server after that CA is
// removed. ca is the new CA.
func (s *server) checkNATS(ca *x509.Certificate) error {
	if s.link == nil {
		return nil
	}
	chain := s.link.Certificates()
	if len(chain) == 0 || !s.creds.Issued(chain) || (&admission.Bundle{CAs: []*x509.Certificate{ca}}).Issued(chain) {
		return nil
	}
	return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "the NATS server's certificate was issued by the CA that would be removed"),
		"--keep-old, then give the NATS server a certificate from the new CA, then repeat the command without --keep-old")
}

// signersBesides returns the certificates, in PEM, that would become invalid if the cluster trusted
// only the given CA. It checks the certificates with which data in the view was signed, and those
// in replied, which servers have sent in their replies. The latter are in DER.
func (s *server) signersBesides(ctx context.Context, ca []byte, replied [][]byte) ([]string, error) {
	b, err := admission.ParseBundle(ca)
	if err != nil {
		return nil, err
	}
	certs, err := s.replica.Certificates(ctx)
	if err != nil {
		return nil, err
	}
	for _, der := range replied {
		certs = append(certs, string(der))
	}
	slices.Sort(certs)
	var out []string
	for _, cert := range slices.Compact(certs) {
		der := []byte(cert)
		chain, err := x509.ParseCertificates(der)
		if err != nil || len(chain) == 0 || b.Issued(chain) {
			continue
		}
		if _, _, _, err := s.creds.Author(der, chain[0].NotAfter); err != nil {
			continue // the certificate is already invalid, with or without the old CA
		}
		out = append(out, strings.TrimSpace(string(admission.CertPEM(chain[0]))))
	}
	return out, nil
}
