package enroll_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
)

// rig is a broker that admits hosts.
type rig struct {
	t       *testing.T
	ca      *admission.CA
	issuer  *admission.CA
	ledger  *enroll.Ledger
	path    string // path of the ledger's file
	taken   map[bourse.WorkerID]bool
	refused bourse.WorkerID // name of a server that has just been removed
	address string
	now     atomic.Int64 // offset that is added to the time, in nanoseconds
}

func newRig(t *testing.T) *rig {
	t.Helper()
	h := &rig{t: t, path: filepath.Join(t.TempDir(), "join-tokens.json"), taken: map[bourse.WorkerID]bool{}}
	var err error
	if h.ca, err = admission.NewCA("test", time.Now()); err != nil {
		t.Fatal(err)
	}
	if h.issuer, err = h.ca.NewIssuer(time.Now()); err != nil {
		t.Fatal(err)
	}
	if h.ledger, err = enroll.OpenLedger(h.path); err != nil {
		t.Fatal(err)
	}
	h.address = h.serve(h.issuer, bourse.RoleBroker, time.Now())
	return h
}

// serve starts a server like a broker's, whose certificate has the given role and was issued by the given CA at the
// given time. It returns the server's address.
func (h *rig) serve(by *admission.CA, role bourse.Role, at time.Time) string {
	h.t.Helper()
	key, private, err := admission.NewKey()
	if err != nil {
		h.t.Fatal(err)
	}
	cert, err := by.Sign(request(h.t, key), admission.Identity{ID: "b1", Role: role}, nil, at)
	if err != nil {
		h.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, private)
	if err != nil {
		h.t.Fatal(err)
	}
	desk := &enroll.Enrollment{
		Issuer: func() *admission.CA { return h.issuer }, Ledger: h.ledger,
		CA:        func() []byte { return h.ca.Pair().Cert },
		NameInUse: func(name bourse.WorkerID) bool { return h.taken[name] },
		Refused:   func(name bourse.WorkerID, _ time.Time) bool { return h.refused == name },
		Common: func([]bourse.Role) (enroll.Reply, error) {
			return enroll.Reply{Cluster: "c1", GossipKey: []byte("key"), Join: []string{"10.0.0.1:7946"}}, nil
		},
		Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Add(time.Duration(h.now.Load())) },
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+enroll.PathCA, desk.CAHandler())
	mux.Handle("POST "+enroll.PathJoin, desk.JoinHandler())
	mux.Handle("POST "+enroll.PathRenew, desk.RenewHandler())
	s := httptest.NewUnstartedServer(mux)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(h.ca.Pair().Cert)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool}
	s.StartTLS()
	h.t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func request(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	r, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// invite creates an invitation to this cluster. Without an expiry in terms, it is valid for an hour.
func (h *rig) invite(terms enroll.Terms) enroll.Invitation {
	h.t.Helper()
	if terms.Expires.IsZero() {
		terms.Expires = time.Now().Add(time.Hour)
	}
	i, secret, err := h.ledger.Make(terms, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	fingerprint, err := enroll.FingerprintOf(h.ca.Pair().Cert)
	if err != nil {
		h.t.Fatal(err)
	}
	v, err := enroll.Parse(enroll.Invitation{Addresses: []string{h.address}, CA: fingerprint, ID: i.ID, Secret: secret}.String())
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}

// host returns a request for a host with one worker, and the worker's key.
func host(t *testing.T, name bourse.WorkerID) (enroll.Request, []byte) {
	t.Helper()
	key, private, err := admission.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return enroll.Request{
		Host: name, Region: "gru", Address: "10.0.0.2",
		Servers: []enroll.Server{{Role: bourse.RoleWorker, Request: request(t, key)}},
	}, private
}

var worker = []bourse.Role{bourse.RoleWorker}

func TestJoin(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: worker, Uses: 1})
	r, key := host(t, "gru-2")
	reply, err := enroll.Join(t.Context(), &v, r)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := admission.NewCredentials(reply.CA, admission.Pair{Cert: reply.Certificates[bourse.RoleWorker], Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if want := (admission.Identity{ID: "gru-2", Role: bourse.RoleWorker}); creds.Self() != want || reply.Cluster != "c1" || string(reply.GossipKey) != "key" {
		t.Errorf("got reply %+v for %v", reply, creds.Self())
	}

	// The host may not have received the reply. It may ask again, even after the broker
	// has restarted.
	if _, err := enroll.Join(t.Context(), &v, r); err != nil {
		t.Errorf("join of the same host again: %v", err)
	}
	again, err := enroll.OpenLedger(h.path)
	if err != nil {
		t.Fatal(err)
	}
	if list := again.List(); len(list) != 1 || len(list[0].Used) != 1 || list[0].Used[0].Host != "gru-2" || list[0].Ended(time.Now()) == "" {
		t.Errorf("got stored invitations %+v, want one that gru-2 has used up", list)
	}
	other, _ := host(t, "gru-2")
	if _, err := enroll.Join(t.Context(), &v, other); bourse.CodeOf(err) != bourse.CodeForbidden || !strings.Contains(err.Error(), "has been used") {
		t.Errorf("join of another host with the same name: %v", err)
	}
}

// TestConflict looks for two names that share a tag.
func TestConflict(t *testing.T) {
	owners := map[bourse.WorkerTag]bourse.WorkerID{}
	for n := range 100_000 {
		id := bourse.WorkerID(fmt.Sprintf("host-%d", n))
		for _, tag := range id.Tags() {
			if other, ok := owners[tag]; ok && other != id {
				if !enroll.Conflict(id, other) || !enroll.Conflict(other, id) {
					t.Errorf("%s and %s share tag %s", id, other, tag)
				}
				if enroll.Conflict("host-0", "host-1") || !enroll.Conflict("host-0", "host-0") {
					t.Error("Conflict returned the wrong result")
				}
				return
			}
			owners[tag] = id
		}
	}
	t.Fatal("no two names share a tag")
}

func TestJoinIsRefused(t *testing.T) {
	h := newRig(t)
	h.taken["taken"] = true
	foreign := newRig(t)
	plain := func(r enroll.Request) enroll.Request { return r }
	for name, c := range map[string]struct {
		terms  enroll.Terms
		change func(*enroll.Invitation)
		with   func(enroll.Request) enroll.Request
		later  time.Duration
		want   bourse.Code
		text   string
	}{
		"expired":               {enroll.Terms{Roles: worker, Uses: 1}, nil, plain, 2 * time.Hour, bourse.CodeForbidden, "has expired"},
		"another secret":        {enroll.Terms{Roles: worker, Uses: 1}, func(v *enroll.Invitation) { v.Secret += "A" }, plain, 0, bourse.CodeUnauthorized, "does not know this join token"},
		"another id":            {enroll.Terms{Roles: worker, Uses: 1}, func(v *enroll.Invitation) { v.ID = "NONE" }, plain, 0, bourse.CodeUnauthorized, "does not know this join token"},
		"another cluster":       {enroll.Terms{Roles: worker, Uses: 1}, func(v *enroll.Invitation) { v.Addresses = []string{foreign.address} }, plain, 0, bourse.CodeForbidden, "another cluster"},
		"another role":          {enroll.Terms{Roles: []bourse.Role{bourse.RoleProxy}, Uses: 1}, nil, plain, 0, bourse.CodeForbidden, "not for the role"},
		"another region":        {enroll.Terms{Roles: worker, Region: "mad", Uses: 1}, nil, plain, 0, bourse.CodeForbidden, "for region mad"},
		"a taken name":          {enroll.Terms{Roles: worker, Uses: 1}, nil, func(r enroll.Request) enroll.Request { r.Host = "taken"; return r }, 0, bourse.CodeAlreadyExists, "already has a server taken"},
		"no name":               {enroll.Terms{Roles: worker, Uses: 1}, nil, func(r enroll.Request) enroll.Request { r.Host = "../x"; return r }, 0, bourse.CodeInvalid, ""},
		"another host's broker": {enroll.Terms{Roles: worker, Uses: 1}, nil, func(r enroll.Request) enroll.Request { r.Host = "h1-broker"; return r }, 0, bourse.CodeInvalid, "is reserved"},
		"no servers":            {enroll.Terms{Roles: worker, Uses: 1}, nil, func(r enroll.Request) enroll.Request { r.Servers = nil; return r }, 0, bourse.CodeInvalid, ""},
		"a bad key":             {enroll.Terms{Roles: worker, Uses: 1}, nil, func(r enroll.Request) enroll.Request { r.Servers[0].Request = []byte("x"); return r }, 0, bourse.CodeInvalid, "certificate request"},
		"a scraper": {enroll.Terms{Roles: []bourse.Role{bourse.RoleScraper}, Uses: 1}, nil, func(r enroll.Request) enroll.Request {
			r.Servers[0].Role = bourse.RoleScraper
			return r
		}, 0, bourse.CodeInvalid, "role"},
		"too large": {enroll.Terms{Roles: worker, Uses: 1}, nil, func(r enroll.Request) enroll.Request {
			r.Servers[0].Request = make([]byte, 1<<20)
			return r
		}, 0, bourse.CodeInvalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h.now.Store(int64(c.later))
			defer h.now.Store(0)
			v := h.invite(c.terms)
			if c.change != nil {
				c.change(&v)
			}
			r, _ := host(t, "new")
			_, err := enroll.Join(t.Context(), &v, c.with(r))
			if bourse.CodeOf(err) != c.want || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %s with %q", err, c.want, c.text)
			}
			for _, i := range h.ledger.List() {
				if i.ID == v.ID && len(i.Used) > 0 {
					t.Error("the refused request counts as a use")
				}
			}
		})
	}
}

// If the broker's certificate is not valid according to the host's clock, the error recommends setting the clock.
func TestJoinWithAWrongClock(t *testing.T) {
	h := newRig(t)
	for name, issued := range map[string]time.Duration{"a day behind": 24 * time.Hour, "a week ahead": -admission.RenewedLife - time.Hour} {
		v := h.invite(enroll.Terms{Roles: worker, Uses: 1})
		v.Addresses = []string{h.serve(h.issuer, bourse.RoleBroker, time.Now().Add(issued))}
		r, _ := host(t, "new")
		if _, err := enroll.Join(t.Context(), &v, r); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "set the clock") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// If two hosts use an invitation for one host at the same time, only one of them is
// admitted.
func TestJoinOfTwoHostsAtOnce(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: worker, Uses: 1})
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		r, _ := host(t, "gru-2")
		all.Go(func() {
			switch _, err := enroll.Join(context.Background(), &v, r); bourse.CodeOf(err) {
			case "":
				admitted.Add(1)
			case bourse.CodeForbidden:
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if admitted.Load() != 1 {
		t.Errorf("got %d admitted hosts, want 1", admitted.Load())
	}
}

// A host that has just been removed gets no certificate that others would refuse. It may try again
// with the same token.
func TestJoinRightAfterARemoval(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: worker, Uses: 1})
	r, _ := host(t, "gru-2")
	h.refused = "gru-2"
	if _, err := enroll.Join(t.Context(), &v, r); bourse.CodeOf(err) != bourse.CodeUnavailable || !strings.Contains(err.Error(), "in a second") {
		t.Errorf("join immediately after the removal: %v, want unavailable", err)
	}
	h.refused = ""
	if _, err := enroll.Join(t.Context(), &v, r); err != nil {
		t.Errorf("join a second later: %v", err)
	}
}

// An invitation cannot be used if the use cannot be stored, because a crash would then
// undo it.
func TestJoinOnAFullDisk(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: worker, Uses: 1})
	dir := filepath.Dir(h.path)
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	r, _ := host(t, "gru-2")
	if _, err := enroll.Join(t.Context(), &v, r); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("got %v, want unavailable", err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := enroll.Join(t.Context(), &v, r); err != nil {
		t.Errorf("join after space was freed: %v", err)
	}
}

// Only a broker of the cluster receives the secret. Other servers of the cluster, such
// as a malicious worker, do not receive it, and neither does anyone else who knows the
// CA's certificate.
func TestJoinSendsTheSecretOnlyToBrokers(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: worker, Uses: 1})
	fake, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{
		"a worker of the cluster":     h.serve(h.issuer, bourse.RoleWorker, time.Now()),
		"another CA of the same name": h.serve(fake, bourse.RoleBroker, time.Now()),
	} {
		v.Addresses = []string{address}
		r, _ := host(t, "gru-2")
		if _, err := enroll.Join(t.Context(), &v, r); err == nil {
			t.Errorf("%s admitted the host", name)
		}
		if used := h.ledger.List()[0].Used; len(used) > 0 {
			t.Errorf("%s received the secret", name)
		}
	}
}

// Only brokers' certificates contain an address. Clients know only a broker's address
// and the CA, so a worker with such a certificate could pretend to be a broker and
// receive their tokens.
func TestOnlyBrokersHaveAddresses(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: []bourse.Role{bourse.RoleBroker, bourse.RoleWorker, bourse.RoleProxy}, Uses: 1})
	r, _ := host(t, "gru-2")
	for _, role := range []bourse.Role{bourse.RoleBroker, bourse.RoleProxy} {
		private, _, err := admission.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		r.Servers = append(r.Servers, enroll.Server{Role: role, Request: request(t, private)})
	}
	reply, err := enroll.Join(t.Context(), &v, r)
	if err != nil {
		t.Fatal(err)
	}
	for role, text := range reply.Certificates {
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if valid := cert.VerifyHostname("10.0.0.2") == nil; valid != (role == bourse.RoleBroker) {
			t.Errorf("the certificate of a %s is valid for the host's address: %v", role, valid)
		}
	}
}

func TestRenew(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: []bourse.Role{bourse.RoleBroker}, Uses: 1})
	r, key := host(t, "gru-2")
	r.Servers[0].Role = bourse.RoleBroker
	reply, err := enroll.Join(t.Context(), &v, r)
	if err != nil {
		t.Fatal(err)
	}
	current, err := tls.X509KeyPair(reply.Certificates[bourse.RoleBroker], key)
	if err != nil {
		t.Fatal(err)
	}
	send := func(with ...tls.Certificate) (*enroll.Renewal, error) {
		renewal, err := enroll.NewRenewal()
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: with}}}
		resp, err := client.Post("https://"+h.address+enroll.PathRenew, "", strings.NewReader(string(renewal.Request)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return renewal, renewal.Read("the broker", resp)
	}
	renewal, err := send(current)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := admission.NewCredentials(renewal.CA, admission.Pair{Cert: renewal.PEM, Key: renewal.PEM})
	if err != nil {
		t.Fatal(err)
	}
	if want := (admission.Identity{ID: "gru-2-broker", Role: bourse.RoleBroker}); creds.Self() != want {
		t.Errorf("got a renewed certificate for %v", creds.Self())
	}
	again, err := tls.X509KeyPair(renewal.PEM, renewal.PEM)
	if err != nil {
		t.Fatal(err)
	}
	if ips := again.Leaf.IPAddresses; len(ips) != 1 || !ips[0].Equal(net.IPv4(10, 0, 0, 2)) {
		t.Errorf("the renewed certificate: got addresses %v, want 10.0.0.2", ips)
	}
	if _, err := send(); bourse.CodeOf(err) != bourse.CodeUnauthorized {
		t.Errorf("renewal without a certificate: %v, want unauthorized", err)
	}
}

func TestParse(t *testing.T) {
	v := enroll.Invitation{Addresses: []string{"10.0.0.1:4280"}, ID: "a", Secret: "b"}
	text := v.String()
	if got, err := enroll.Parse(" " + text + "\n"); err != nil || !cmp.Equal(got, v) {
		t.Errorf("got %+v, %v; want %+v", got, err, v)
	}
	for i := range len(text) {
		for _, c := range []byte{'A', 'q', '-'} {
			changed := []byte(text)
			if changed[i] == c {
				continue
			}
			changed[i] = c
			if _, err := enroll.Parse(string(changed)); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Fatalf("byte %d changed to %c: %v", i, c, err)
			}
		}
	}
	if _, err := enroll.Parse(text[:len(text)-1]); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Error("a token without its last byte was accepted")
	}
}

func TestRevoke(t *testing.T) {
	h := newRig(t)
	v := h.invite(enroll.Terms{Roles: worker, Uses: 1})
	if err := h.ledger.Revoke(v.ID); err != nil {
		t.Fatal(err)
	}
	r, _ := host(t, "gru-2")
	if _, err := enroll.Join(t.Context(), &v, r); bourse.CodeOf(err) != bourse.CodeUnauthorized {
		t.Errorf("join with a revoked invitation: %v, want unauthorized", err)
	}
	if err := h.ledger.Revoke(v.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("second revocation: %v, want not found", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(enroll.Invitation{Addresses: []string{"[::1]:1"}, ID: "a", Secret: "b"}.String())
	f.Add("bourse-join-")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := enroll.Parse(text)
		if err != nil {
			return
		}
		if again, err := enroll.Parse(v.String()); err != nil || !cmp.Equal(v, again) {
			t.Errorf("%+v was parsed as %+v, %v", v, again, err)
		}
	})
}

func FuzzOpenLedger(f *testing.F) {
	f.Add([]byte(`[{"id":"a","roles":["worker"],"uses":1,"expires":"2026-01-01T00:00:00Z"}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "l")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := enroll.OpenLedger(path)
		if err == nil {
			l.List()
			_ = l.Verify("a", "b")
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"host":"a","region":"gru","servers":[{"role":"worker","request":"AA=="}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		var r enroll.Request
		if json.Unmarshal(data, &r) == nil {
			_ = r.Validate()
		}
	})
}
