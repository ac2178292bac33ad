package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestCertifiedMembers checks which servers a broker records. If several brokers see the same
// servers, only one of them records them.
func TestCertifiedMembers(t *testing.T) {
	expires := time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)
	cert := &x509.Certificate{NotBefore: expires.AddDate(0, 0, -7), NotAfter: expires}
	b1, b2 := bourse.Member{ID: "b1", Role: bourse.RoleBroker}, bourse.Member{ID: "b2", Role: bourse.RoleBroker}
	p1, p2 := bourse.Member{ID: "p1", Role: bourse.RoleProxy, Region: "gru"}, bourse.Member{ID: "p2", Role: bourse.RoleProxy}
	w1 := bourse.Member{ID: "a-worker", Role: bourse.RoleWorker}
	for name, c := range map[string]struct {
		self    bourse.Member
		members []bourse.Member
		want    []bourse.WorkerID
	}{
		"the first broker":                  {b1, []bourse.Member{w1, b1, b2, p1, p2}, []bourse.WorkerID{"b1", "b2", "p1"}},
		"the second broker":                 {b2, []bourse.Member{w1, b1, b2, p1, p2}, nil},
		"on one side of a partition":        {b1, []bourse.Member{b1, w1}, []bourse.WorkerID{"b1"}},
		"on the other side":                 {b2, []bourse.Member{b2, p1, p2}, []bourse.WorkerID{"b2", "p1"}},
		"alone, and not listed as a member": {b2, nil, []bourse.WorkerID{"b2"}},
	} {
		got := certifiedMembers(c.self, cert, c.members, func(m bourse.Member) *x509.Certificate {
			if m.ID == c.self.ID || m.ID == "p2" { // p2 has not proven its identity again after its removal
				return nil
			}
			return cert
		})
		var ids []bourse.WorkerID
		for _, m := range got {
			ids = append(ids, m.ID)
			if m.Role == "" || m.ID == "p1" && m.Region != "gru" || !m.ExpiresAt.Equal(expires) || !m.IssuedAt.Before(expires) {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%s: recorded %v, want %v", name, ids, c.want)
		}
	}
}

// certifiedCluster is a cluster with certificates.
type certifiedCluster struct {
	*authority
	name string
	pool *x509.CertPool
}

const operatorOfTest = "a-token-of-those-who-run-it"

func newCertifiedCluster(t *testing.T) *certifiedCluster {
	t.Helper()
	c := &certifiedCluster{newAuthority(t), servertest.Cluster(t), x509.NewCertPool()}
	issuer, err := c.ca.NewIssuer(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.file("issuer.pem", string(issuer.Pair().PEM()))
	c.file("tokens", operatorOfTest+" *\n")
	c.pool.AppendCertsFromPEM(c.ca.Pair().Cert)
	return c
}

func (c *certifiedCluster) start(role bourse.Role, id bourse.WorkerID, more ...string) *served {
	c.t.Helper()
	args := append([]string{string(role), "--cluster", c.name, "--name", string(id), "--data", c.t.TempDir()}, more...)
	return startServer(c.t, append(args, c.flags(id, role)...)...)
}

func (c *certifiedCluster) client(of *served) *machinesapi.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.pool, MinVersion: tls.VersionTLS13}}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &machinesapi.Client{BaseURL: "https://" + of.API, Token: operatorOfTest, HTTP: &http.Client{Transport: transport}}
}

type memberStatuses = map[bourse.WorkerID]machinesapi.MemberStatus

// awaitList waits until a broker lists exactly these servers.
func (c *certifiedCluster) awaitList(of *served, want memberStatuses) {
	c.t.Helper()
	client, last := c.client(of), ""
	await(c.t, "the servers are listed", func() bool {
		list, err := client.Members(c.t.Context())
		got := memberStatuses{}
		for _, m := range list {
			got[m.ID] = m.Status
		}
		diff := cmp.Diff(want, got)
		if diff != last {
			c.t.Logf("%s: %v (-want +got)\n%s", of.ID, err, diff)
		}
		last = diff
		return err == nil && diff == ""
	})
}

// join requests certificates for a host with a proxy.
func (c *certifiedCluster) join(at *served, host bourse.WorkerID) error {
	c.t.Helper()
	token, err := c.client(at).JoinTokens().Create(c.t.Context(), machinesapi.CreateJoinToken{Roles: []bourse.Role{bourse.RoleProxy}})
	if err != nil {
		c.t.Fatal(err)
	}
	invitation, err := enroll.Parse(token.Token)
	if err != nil {
		c.t.Fatal(err)
	}
	renewal, err := enroll.NewRenewal()
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = enroll.Join(c.t.Context(), &invitation, enroll.Request{Host: host, Servers: []enroll.Server{{Role: bourse.RoleProxy, Request: renewal.Request}}})
	return err
}

// TestDownServersAreKnown stops a proxy, and later the broker that recorded its certificate. The other brokers must
// list both as down, even a broker that started later with an empty view. Until the proxy is removed, its name must
// remain in use, and rotations of the gossip key must wait for the proxy.
func TestDownServersAreKnown(t *testing.T) {
	t.Parallel()
	c := newCertifiedCluster(t)
	const ok, down, removed = machinesapi.MemberOK, machinesapi.MemberDown, machinesapi.MemberRemoved
	const proxy = "gru-1-proxy"
	first := c.start(bourse.RoleBroker, "b-1", "--listen", "127.0.0.1:0")
	second := c.start(bourse.RoleBroker, "b-2", "--listen", "127.0.0.1:0", "--join", first.Gossip)
	stopped := c.start(bourse.RoleProxy, proxy, "--region", "gru", "--http", "127.0.0.1:0=any", "--join", first.Gossip)
	c.awaitList(second, memberStatuses{"b-1": ok, "b-2": ok, proxy: ok})
	stopped.end(t, syscall.SIGTERM)
	c.awaitList(first, memberStatuses{"b-1": ok, "b-2": ok, proxy: down})
	third := c.start(bourse.RoleBroker, "b-3", "--listen", "127.0.0.1:0", "--join", second.Gossip) // with an empty view
	c.awaitList(third, memberStatuses{"b-1": ok, "b-2": ok, "b-3": ok, proxy: down})
	c.awaitList(first, memberStatuses{"b-1": ok, "b-2": ok, "b-3": ok, proxy: down}) // the first broker carries out the rotation
	rotation, err := c.client(second).Operator().Rotate(t.Context(), machinesapi.KeyGossip, machinesapi.Rotate{Start: true})
	want := machinesapi.Rotation{Step: machinesapi.RotationCheck, Servers: []machinesapi.RotationServer{
		{ID: "b-1", Role: bourse.RoleBroker, OK: true},
		{ID: "b-2", Role: bourse.RoleBroker, OK: true},
		{ID: "b-3", Role: bourse.RoleBroker, OK: true},
		{ID: proxy, Role: bourse.RoleProxy, Error: "the proxy is down"},
	}}
	if diff := cmp.Diff(want, rotation); err != nil || diff != "" {
		t.Errorf("rotation: %v (-want +got)\n%s", err, diff)
	}
	first.end(t, syscall.SIGTERM)
	c.awaitList(third, memberStatuses{"b-1": down, "b-2": ok, "b-3": ok, proxy: down})
	if err := c.join(third, "gru-1"); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("join with the name of a host that is down: %v", err)
	}
	if m, err := c.client(third).Operator().RemoveMember(t.Context(), proxy, false); err != nil || m.Status != down || m.Role != bourse.RoleProxy {
		t.Errorf("remove the proxy: %+v, %v", m, err)
	}
	c.awaitList(second, memberStatuses{"b-1": down, "b-2": ok, "b-3": ok, proxy: removed})
	await(t, "the name can be used again", func() bool {
		err := c.join(third, "gru-1")
		if code := bourse.CodeOf(err); err != nil && code != bourse.CodeAlreadyExists && code != bourse.CodeUnavailable { // within a second of the removal
			t.Fatal(err)
		}
		return err == nil
	})
	first = c.start(bourse.RoleBroker, "b-1", "--listen", "127.0.0.1:0", "--join", second.Gossip)
	c.awaitList(first, memberStatuses{"b-1": ok, "b-2": ok, "b-3": ok, proxy: removed})
	for _, s := range []*served{third, second, first} {
		s.end(t, syscall.SIGTERM)
	}
}
