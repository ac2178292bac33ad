package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/view/gossip"
)

// openNetworks opens the server's listeners and its connection to the other servers. A
// worker on NATS listens only on NATS. Brokers and proxies always listen at an address
// as well, for their clients.
func (s *server) openNetworks(ctx context.Context) error {
	var err error
	if s.config.NATS.Set() {
		if s.link, err = s.openLink(ctx); err != nil {
			return err
		}
		s.self.Address = s.link.HostPort(nats.PortAPI)
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

// closeNetworks closes everything that openNetworks opened. It may be called even if openNetworks
// failed.
func (s *server) closeNetworks() {
	if s.wire != nil {
		s.wire.Close()
	}
	if s.listener != nil {
		_ = s.listener.Close() // the listener is already closed if the API's stage has run
	}
	if s.link != nil {
		s.link.Close()
	}
}

func (s *server) openLink(ctx context.Context) (*nats.Link, error) {
	c := &s.config.NATS
	out := nats.Config{
		URLs: c.URLs, Cluster: s.config.Cluster, Name: string(s.self.Role) + " " + string(s.self.ID),
		Creds: c.Creds, NKey: c.NKey, Log: s.log,
	}
	if c.Local() && c.Creds == "" && c.NKey == "" && s.secret != "" { // for example the NATS server of "bourse dev"
		out.Token = s.secret.Text("nats")
	}
	if err := s.natsTLS(&out); err != nil {
		return nil, err
	}
	link, err := nats.Open(ctx, out)
	if bourse.CodeOf(err) == bourse.CodeUnauthorized {
		err = cli.Hint(err, "--nats nats://USER:PASSWORD@HOST:PORT, --nats-creds FILE, or --nats-nkey FILE")
	}
	return link, err
}

// natsTLS sets the CAs that may certify the NATS servers, and the certificate that this server
// presents to them. If the files change, the next connection uses the new contents. If no files are
// configured, a server with credentials trusts its cluster's CA in addition to the host's CAs, and
// presents its own certificate.
func (s *server) natsTLS(out *nats.Config) error {
	files, roots := s.config.NATS.TLS, x509.NewCertPool()
	if !files.Set() && s.creds != nil && s.config.NATS.Encrypted() {
		own := s.config.Credentials.Files
		files = serve.NATSFiles{CA: own.CA, Cert: own.Pair, Key: own.Pair}
		if system, err := x509.SystemCertPool(); err == nil {
			roots = system
		}
	}
	if files.CA != "" {
		pool, err := admission.NewLive([]string{files.CA}, func() (*x509.CertPool, error) {
			text, err := os.ReadFile(files.CA)
			if err != nil {
				return nil, bourse.Errorf(bourse.CodeInvalid, "--nats-ca: %w", err)
			}
			pool := roots.Clone()
			if !pool.AppendCertsFromPEM(text) {
				return nil, bourse.Errorf(bourse.CodeInvalid, "--nats-ca: %s contains no PEM certificate", files.CA)
			}
			return pool, nil
		}, nil)
		if err != nil {
			return err
		}
		s.watched = append(s.watched, pool)
		out.CA = pool.Get
	}
	if files.Cert != "" {
		pair, err := admission.NewLive([]string{files.Cert, files.Key}, func() (tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
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

// dial connects to a server over TCP or NATS, depending on its address.
func (s *server) dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case !nats.IsAddress(address):
		return direct.TCP(ctx, network, address)
	case s.link == nil:
		return nil, errors.New("the address is on NATS, but this server does not use NATS")
	}
	return s.link.Dial(ctx, address)
}

// fabric returns the fabric for calls to workers.
func (s *server) fabric() fabric.Fabric {
	if s.link == nil {
		return s.wire
	}
	return &nats.Fabric{Caller: s.wire, Link: s.link, ConnectionsOnly: s.creds != nil, WorkerCount: func(region bourse.Region) int {
		n := 0
		for _, m := range s.replica.directory.Candidates(region) {
			if nats.IsAddress(m.Address) {
				n++
			}
		}
		return n
	}}
}

// serveLink serves other servers that connect to a broker or proxy over NATS. It serves the
// replication paths and h. Clients connect to the listener instead.
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

// countsInterval is the interval at which logCounts checks the failure counters.
const countsInterval = time.Minute

// logCounts logs the NATS link's failure counters at regular intervals, if they have
// changed.
func (s *server) logCounts(ctx context.Context) error {
	tick := time.NewTicker(countsInterval)
	defer tick.Stop()
	for logged := (nats.Counts{}); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if now := s.link.Counts(); now != logged {
			logged = now
			s.log.Info("NATS failures since start", "reconnects", now.Reconnects, "slow_consumers", now.SlowConsumers, "oversized", now.Oversized,
				"malformed", now.Malformed, "resets", now.Resets, "dropped", now.Dropped)
		}
	}
}

// serve serves requests on ln like [direct.Serve], but first passes them through the gate. All of
// the program's listeners use it.
func (s *server) serve(ctx context.Context, ln net.Listener, h http.Handler, config *tls.Config) error {
	proof := s.proof()
	if !onLoopback(ln) {
		proof.Bearer = "" // only servers on loopback know the secret
	}
	gate := admission.Gate{Proof: proof, Names: func() []string {
		if s.creds == nil {
			return s.config.Names
		}
		return append(s.creds.Names(), s.config.Names...)
	}}
	if s.creds != nil && config != nil {
		ln = s.creds.Track(ln)
	}
	return direct.Serve(ctx, ln, gate.Wrap(h), config, s.log)
}

// proof returns the credentials that servers send to each other: the cluster's name
// and, on loopback, its secret.
func (s *server) proof() admission.Proof {
	return admission.Proof{Cluster: s.config.Cluster, Bearer: string(s.secret)}
}

// openSecret reads the secret that servers on loopback share. With certificates or
// --insecure, servers have no secret.
func (s *server) openSecret() (err error) {
	if s.creds == nil && !s.config.Insecure {
		s.secret, err = loopback.SecretOf(os.Getenv, s.config.Cluster)
	}
	return err
}

// clientToken creates a token for a listener's clients. It returns nil if the operator
// has configured tokens, if --insecure is set, or if the listener is accessible from
// other hosts.
func (s *server) clientToken(ln net.Listener, file string) (*loopback.Token, error) {
	if file != "" || s.config.Insecure || !onLoopback(ln) {
		return nil, nil
	}
	return loopback.TokenOf(os.Getenv, ln.Addr().(*net.TCPAddr).AddrPort())
}

// onLoopback reports whether a listener is accessible only from this host. It returns
// false for listeners on NATS, which have no TCP address.
func onLoopback(ln net.Listener) bool {
	at, ok := ln.Addr().(*net.TCPAddr)
	return ok && at.AddrPort().Addr().Unmap().IsLoopback()
}

// tokenStage returns the stage that removes a token's file before the token's listener
// closes. The file must not be removed later, because the next server with the same
// address writes a file with the same name. t may be nil.
func tokenStage(t *loopback.Token) stage {
	return atEnd("token", func(context.Context) error {
		if t == nil {
			return nil
		}
		return t.Remove()
	})
}

// openGroups opens the server's membership in the gossip group of each network that the
// server uses.
func (s *server) openGroups() error {
	c := gossip.Config{Self: s.self, ClusterID: s.config.Cluster, Rumors: s.replica.Replicator, Log: s.log}
	if s.creds != nil {
		c.Proofs = proofs{s.creds, s.wire}
	}
	if s.config.Credentials.GossipKey != "" {
		keys, err := admission.LoadGossipKeys(s.config.Credentials.GossipKey, s.setGossipKeys)
		if err != nil {
			return err
		}
		c.Key, c.MoreKeys = keys.Get()[0], keys.Get()[1:]
		s.watched = append(s.watched, keys)
		s.shareGossipKeys(keys)
	}
	if s.link != nil {
		there := c
		there.Transport, there.Find = s.link.Transport(), s.link.Find
		if err := s.openGroup(there); err != nil {
			return err
		}
	}
	if s.link == nil || s.config.NATS.Both {
		c.Bind, c.Join = s.config.Gossip, s.config.Join
		if len(c.Key) == 0 && c.Bind.Addr().Unmap().IsLoopback() {
			c.Key = s.secret.For("gossip")
		}
		c.Self.Address = s.directAddress()
		return s.openGroup(c)
	}
	return nil
}

func (s *server) openGroup(c gossip.Config) error {
	group, err := gossip.Open(c)
	if err == nil {
		s.groups = append(s.groups, group)
	}
	return err
}

// setGossipKeys sets the keys of all groups.
func (s *server) setGossipKeys(keys [][]byte) error {
	for _, group := range s.groups {
		if err := group.SetKeys(keys); err != nil {
			return err
		}
	}
	return nil
}

// members returns the members of all groups, without duplicates.
func (s *server) members() []bourse.Member {
	if len(s.groups) == 1 {
		return s.groups[0].Members()
	}
	seen := map[bourse.WorkerID]bool{}
	var out []bourse.Member
	for _, group := range s.groups {
		for _, m := range group.Members() {
			if !seen[m.ID] {
				seen[m.ID] = true
				out = append(out, m)
			}
		}
	}
	return out
}

// changed returns a channel that is closed when the members may have changed.
func (s *server) changed() <-chan struct{} {
	if len(s.groups) == 1 {
		return s.groups[0].Changed()
	}
	s.groupChanges.mu.Lock()
	defer s.groupChanges.mu.Unlock()
	return s.groupChanges.changed
}

// combinedChanges reports membership changes in either of two groups.
type combinedChanges struct {
	mu      sync.Mutex
	changed chan struct{}
}

func (e *combinedChanges) run(ctx context.Context, one, other *gossip.Members) {
	for ctx.Err() == nil {
		a, b := one.Changed(), other.Changed()
		e.mu.Lock()
		before := e.changed
		e.changed = make(chan struct{})
		e.mu.Unlock()
		close(before) // a and b were obtained first, so that no change is missed
		select {
		case <-a:
		case <-b:
		case <-ctx.Done():
		}
	}
}

// membership returns the stage during which this server is a member of the cluster.
func (s *server) membership() stage {
	return stage{name: "membership", run: func(ctx context.Context) error {
		running, ctx := errgroup.WithContext(ctx)
		for _, group := range s.groups {
			running.Go(func() error { return group.Run(ctx) })
		}
		if len(s.groups) > 1 {
			running.Go(func() error {
				s.groupChanges.run(ctx, s.groups[0], s.groups[1])
				return nil
			})
		}
		if s.link != nil {
			running.Go(func() error { return s.logCounts(ctx) })
		}
		return running.Wait()
	}}
}

// contacted returns a channel that is closed once the server has contacted the other members,
// or has found that there are none.
func (s *server) contacted() <-chan struct{} { return s.groups[0].Ready() }
