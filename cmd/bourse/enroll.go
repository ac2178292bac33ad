package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// openDesk opens the part of a broker that admits hosts and renews certificates. It returns nil if the broker has no
// issuer.
func (s *server) openDesk(c *serve.BrokerConfig) (*enroll.Enrollment, error) {
	if s.creds == nil || c.Credentials.Issuer == "" || c.Data == "" {
		return nil, nil
	}
	issuer, err := admission.NewLive([]string{c.Credentials.Issuer}, func() (*admission.CA, error) {
		pair, err := os.ReadFile(c.Credentials.Issuer)
		if err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "read the issuer: %w", err)
		}
		return admission.ParseCA(admission.Pair{Cert: pair, Key: pair})
	}, nil)
	if err != nil {
		return nil, err
	}
	ca, err := admission.NewLive([]string{c.Credentials.Files.CA}, func() ([]byte, error) { return os.ReadFile(c.Credentials.Files.CA) }, nil)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "read the CA: %w", err)
	}
	s.deskFiles = []admission.Watched{issuer, ca}
	s.watched = append(s.watched, s.deskFiles...)
	ledger, err := enroll.OpenLedger(filepath.Join(c.Data, "join-tokens.json"))
	if err != nil {
		return nil, err
	}
	return &enroll.Enrollment{
		Issuer: issuer.Get, CA: ca.Get, Ledger: ledger, Region: c.Region, NameInUse: s.nameInUse, Refused: s.creds.Refused, Log: s.log, Now: time.Now,
		Common: func(roles []bourse.Role) (enroll.Reply, error) { return s.common(c, roles) },
	}, nil
}

// nameInUse reports whether name conflicts with the name of another server. Servers that are down count, unless they
// were removed.
func (s *server) nameInUse(name bourse.WorkerID) bool {
	named := func(m bourse.Member) bool { return enroll.Conflict(m.ID, name) }
	present, absent := s.replica.directory.All()
	return slices.ContainsFunc(s.members(), named) || slices.ContainsFunc(present, named) ||
		slices.ContainsFunc(s.replica.directory.Certified(), named) ||
		slices.ContainsFunc(absent, func(a bourse.Absence) bool { return enroll.Conflict(a.ID, name) && !a.Removed })
}

// common returns everything that a joining host needs, except its certificates.
func (s *server) common(c *serve.BrokerConfig, roles []bourse.Role) (enroll.Reply, error) {
	r := enroll.Reply{Cluster: c.Cluster, NATS: c.NATS.URLs}
	if s.link == nil || c.NATS.Both {
		r.Join = append([]string{s.groups[len(s.groups)-1].Addr()}, c.Join...)
	}
	files := map[string]*[]byte{c.Credentials.GossipKey: &r.GossipKey}
	if slices.Contains(roles, bourse.RoleBroker) {
		files[c.Credentials.Tokens], files[c.Credentials.SecretsKey] = &r.Tokens, &r.SecretsKey
	}
	for path, into := range files {
		if path == "" {
			continue
		}
		var err error
		if *into, err = os.ReadFile(path); err != nil {
			return r, bourse.Errorf(bourse.CodeUnavailable, "read what hosts need: %w", err)
		}
	}
	return r, nil
}

// invitations creates join tokens for a broker.
type invitations struct {
	*enroll.Ledger
	desk    *enroll.Enrollment
	address string // address of the broker's API
}

var _ broker.Invitations = invitations{}

// Make implements broker.Invitations.
func (v invitations) Make(terms enroll.Terms, now time.Time) (enroll.Issued, string, error) {
	fingerprint, err := enroll.FingerprintOf(v.desk.CA())
	if err != nil {
		return enroll.Issued{}, "", err
	}
	i, secret, err := v.Ledger.Make(terms, now)
	if err != nil {
		return i, "", err
	}
	return i, enroll.Invitation{Addresses: []string{v.address}, CA: fingerprint, ID: i.ID, Secret: secret}.String(), nil
}

// withDesk adds the paths of desk, which may be nil, to a broker's API.
func (s *server) withDesk(h http.Handler, desk *enroll.Enrollment) http.Handler {
	if desk == nil {
		return h
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+enroll.PathCA, desk.CAHandler())
	mux.Handle("POST "+enroll.PathJoin, desk.JoinHandler())
	mux.Handle("POST "+enroll.PathRenew, direct.Handler(s.self.ID, admission.Require(desk.RenewHandler(), bourse.ServerRoles()...)))
	mux.Handle("/", h)
	return mux
}

// Delays before the renewal stage checks the certificate. Up to half of each delay is added at
// random.
const (
	renewEvery = time.Hour        // after a check that succeeded
	renewRetry = 2 * time.Minute  // after a check that failed
	renewFirst = 10 * time.Second // after the server's start
)

// renewal returns the stage that renews the server's certificate once half of its validity has
// passed. It does not renew a certificate that is valid for longer than those that brokers issue.
// Operators must replace such a certificate themselves.
func (s *server) renewal() stage {
	return stage{name: "renewal", run: func(ctx context.Context) error {
		if s.creds == nil {
			<-ctx.Done() // the server would stop if this stage returned
			return nil
		}
		for wait := renewFirst; ; {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait + rand.N(wait/2)):
			}
			wait = renewEvery
			if err := s.renew(ctx, time.Now()); err != nil && ctx.Err() == nil {
				wait = renewRetry
				s.log.Warn("certificate renewal failed, will retry", "expires", s.creds.Expires(), "err", err)
			}
		}
	}}
}

func (s *server) renew(ctx context.Context, now time.Time) error {
	if !s.creds.RenewalDue(now) {
		return nil
	}
	return s.replaceCertificate(ctx, func(*enroll.Renewal) error { return nil })
}

// replaceCertificate obtains a certificate from a broker and stores it. It tries the brokers in
// random order until check accepts a reply.
func (s *server) replaceCertificate(ctx context.Context, check func(*enroll.Renewal) error) error {
	renewal, err := enroll.NewRenewal()
	if err != nil {
		return err
	}
	brokers := slices.DeleteFunc(s.members(), func(m bourse.Member) bool { return m.Role != bourse.RoleBroker })
	if s.self.Role == bourse.RoleBroker && !slices.ContainsFunc(brokers, func(m bourse.Member) bool { return m.ID == s.self.ID }) {
		brokers = append(brokers, s.self)
	}
	rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
	failed := []error{errors.New("no broker could renew it")}
	for _, b := range brokers {
		err := s.renewAt(ctx, &b, renewal)
		if err == nil {
			err = check(renewal)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", b.ID, err))
			continue
		}
		files := s.config.Credentials.Files
		if err := wholefile.Write(files.Pair, renewal.PEM, 0o600); err != nil {
			return fmt.Errorf("store the certificate: %w", err)
		}
		s.log.Info("certificate renewed", "broker", b.ID)
		return nil
	}
	return errors.Join(failed...)
}

func (s *server) renewAt(ctx context.Context, b *bourse.Member, renewal *enroll.Renewal) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := s.wire.Call(ctx, *b, &http.Request{
		Method: http.MethodPost, URL: &url.URL{Path: enroll.PathRenew}, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(renewal.Request)), ContentLength: int64(len(renewal.Request)),
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return renewal.Read(string(b.ID), resp)
}
