package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
)

// openNetworks makes the server reachable, and its way to the others. A worker
// on NATS listens there and nowhere else; brokers and proxies listen for their
// clients in any case.
func (s *server) openNetworks(ctx context.Context) error {
	var err error
	if s.config.NATS.Set() {
		if s.link, err = s.openLink(ctx); err != nil {
			return err
		}
		s.self.Address = s.link.Place(nats.PortAPI)
	}
	if s.link != nil && s.self.Role == bourse.RoleWorker {
		s.listener = s.link.Listen(nats.PortAPI)
	} else if s.listener, err = listen("the API", s.config.Listen); err != nil {
		return err
	}
	if s.link == nil {
		s.self.Address = s.directAddress()
	}
	var toServers direct.TLS
	if s.creds != nil {
		toServers = s.creds.Client
	}
	s.wire = direct.NewOver(s.dial, toServers, s.proof())
	return nil
}

func (s *server) directAddress() string {
	return reachable(s.listener.Addr().(*net.TCPAddr).AddrPort()).String()
}

// closeNetworks undoes openNetworks, as far as it came.
func (s *server) closeNetworks() {
	if s.wire != nil {
		s.wire.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close() // the API's stage has, if it ran
	}
	if s.link != nil {
		s.link.Close()
	}
}

func (s *server) openLink(ctx context.Context) (*nats.Link, error) {
	c := &s.config.NATS
	out := nats.Config{
		URLs: c.URLs, Prefix: c.Prefix, Cluster: s.config.Cluster, Name: string(s.self.Role) + " " + string(s.self.ID),
		Creds: c.Creds, NKey: c.NKey, Log: s.log,
	}
	if c.Local() && c.Creds == "" && c.NKey == "" && s.secret != "" { // one of bourse dev, say
		out.Token = s.secret.Text("nats")
	}
	if err := s.natsTLS(&out); err != nil {
		return nil, err
	}
	link, err := nats.Open(ctx, out)
	if bourse.CodeOf(err) == bourse.CodeUnauthorized {
		err = cli.Hint(err, "a user that NATS lets in: nats://USER:PASSWORD@HOST:PORT in --nats, or --nats-creds FILE, or --nats-nkey FILE")
	}
	return link, err
}

// natsTLS is how the NATS servers prove who they are, and we to them, where
// that is not what is usual. Changed files count from the next connection on.
func (s *server) natsTLS(out *nats.Config) error {
	c := &s.config.NATS
	if c.TLS.CA != "" {
		pool, err := admission.NewLive([]string{c.TLS.CA}, func() (*x509.CertPool, error) {
			text, err := os.ReadFile(c.TLS.CA)
			if err != nil {
				return nil, bourse.Errorf(bourse.CodeInvalid, "--nats-ca: %w", err)
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(text) {
				return nil, bourse.Errorf(bourse.CodeInvalid, "--nats-ca: %s has no certificate in PEM", c.TLS.CA)
			}
			return pool, nil
		}, nil)
		if err != nil {
			return err
		}
		s.watched = append(s.watched, pool)
		out.CA = pool.Get
	}
	if c.TLS.Cert != "" {
		pair, err := admission.NewLive([]string{c.TLS.Cert, c.TLS.Key}, func() (tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
			if err != nil {
				return pair, bourse.Errorf(bourse.CodeInvalid, "--nats-cert: %w", err)
			}
			return pair, nil
		}, nil)
		if err != nil {
			return err
		}
		s.watched = append(s.watched, pair)
		out.Certificate = pair.Get
	}
	return nil
}

// dial reaches a server in the way of its address.
func (s *server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case !nats.IsAddress(address):
		return direct.TCP(ctx, network, address)
	case s.link == nil:
		return nil, errors.New("it is on NATS, and this server is not")
	}
	return s.link.Dial(ctx, address)
}

// fabric is how workers are asked and called.
func (s *server) fabric() fabric.Fabric {
	if s.link == nil {
		return s.wire
	}
	return &nats.Fabric{Caller: s.wire, Link: s.link, Private: s.creds != nil, Population: func(region bourse.Region) int {
		n := 0
		for _, m := range s.replica.directory.Candidates(region) {
			if nats.IsAddress(m.Address) {
				n++
			}
		}
		return n
	}}
}

// serveLink is a broker's or proxy's side of NATS: other servers' replicators, and what
// h has for them. Clients come to the listener.
func (s *server) serveLink(ctx context.Context, h http.Handler) error {
	if s.link == nil {
		<-ctx.Done()
		return nil
	}
	var secure *tls.Config
	if s.creds != nil {
		secure = s.creds.Server(bourse.ServerRoles()...)
	}
	return s.serve(ctx, s.link.Listen(nats.PortAPI), s.withReplication(h), secure)
}

// countsEvery is how often failures on NATS are logged, if there are any.
const countsEvery = time.Minute

// tellCounts logs what the link has counted, as it changes.
func (s *server) tellCounts(ctx context.Context) error {
	tick := time.NewTicker(countsEvery)
	defer tick.Stop()
	for logged := (nats.Counts{}); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := s.link.Counts(); now != logged {
			logged = now
			s.log.Info("on NATS since the start", "reconnects", now.Reconnects, "slow_consumers", now.SlowConsumers, "oversized", now.Oversized,
				"malformed", now.Malformed, "resets", now.Resets, "dropped", now.Dropped)
		}
	}
}
