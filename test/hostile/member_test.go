package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/direct"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/gossip"
)

const clusterToken = "a-token-of-those-who-run-it"

// secured is a cluster with certificates, a membership key and tokens.
type secured struct {
	t   *testing.T
	dir string
	ca  *admission.CA
	key []byte // key of the membership
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	ca, err := admission.NewCA("test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := &secured{t: t, dir: t.TempDir(), ca: ca, key: []byte("0123456789abcdef")}
	s.put("ca.pem", ca.Pair().Cert)
	s.put("gossip.key", []byte(hex.EncodeToString(s.key)))
	s.put("tokens", []byte(clusterToken+" *\n"))
	return s
}

// put replaces a credentials file atomically and returns its path.
func (s *secured) put(name string, text []byte) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// issue writes a new certificate for a server to its files.
func (s *secured) issue(id bourse.WorkerID, role bourse.Role) admission.Files {
	s.t.Helper()
	pair, err := s.ca.Issue(admission.Identity{ID: id, Role: role}, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return admission.Files{
		CA: filepath.Join(s.dir, "ca.pem"), Pair: s.put(string(id)+".pem", pair.PEM()),
	}
}

func (s *secured) flags(id bourse.WorkerID, role bourse.Role) []string {
	s.issue(id, role)
	return []string{"--credentials", s.dir}
}

func (s *secured) broker(more ...string) *servertest.Server {
	return servertest.Start(s.t, "broker", append(append([]string{
		"serve", "broker", "--name", "b1", "--listen", "127.0.0.1:0",
	}, s.flags("b1", bourse.RoleBroker)...), more...)...)
}

func (s *secured) worker(more ...string) *servertest.Server {
	return servertest.Start(s.t, "w1", append(append([]string{
		"serve", "worker", "--region", "gru", "--name", "w1", "--data", filepath.Join(s.dir, "w1"),
		"--cpus", "4", "--memory", "4GiB", "--ephemeral", "--allow-host",
	}, s.flags("w1", bourse.RoleWorker)...), more...)...)
}

// as returns a client that presents a server's certificate, or none if creds is nil.
func (s *secured) as(name string, creds *admission.Credentials) *http.Client {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if creds != nil {
		config = creds.Client().Clone()
	} else {
		config.RootCAs = s.credentials("reader").Client().RootCAs
	}
	config.ServerName = name
	transport := &http.Transport{TLSClientConfig: config}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *secured) credentials(id bourse.WorkerID) *admission.Credentials {
	s.t.Helper()
	c, err := admission.Load(s.issue(id, bourse.RoleWorker))
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *secured) client(broker *servertest.Server) *machinesapi.Client {
	return &machinesapi.Client{BaseURL: "https://" + broker.API, HTTP: s.as("127.0.0.1", nil), Token: clusterToken}
}

// execOnW1 places a machine on w1, the only worker, and runs a command in it.
func (s *secured) execOnW1(api *machinesapi.Client) {
	s.t.Helper()
	var made machinesapi.CreatedMachine
	var err error
	if !servertest.Within(servertest.Timeout, func() bool {
		made, err = api.Create(s.t.Context(), "default", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 16}, Init: bourse.Init{Exec: []string{"/bin/sleep", "1000"}},
		}}, "")
		return err == nil
	}) {
		s.t.Fatalf("place a machine: %v", err)
	}
	said, err := api.Exec(s.t.Context(), "default", made.ID, machinesapi.ExecMachine{Command: []string{"echo", "it is w1"}, Timeout: 10})
	if err != nil || said.Stdout != "it is w1\n" {
		s.t.Errorf("exec: %+v, %v; want \"it is w1\"", said, err)
	}
}

// intrude runs a member of the membership in this process. The member can describe itself
// in any way.
func intrude(t *testing.T, c gossip.Config) *gossip.Members {
	t.Helper()
	c.Bind = netip.MustParseAddrPort("127.0.0.1:0")
	m, err := gossip.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Run(ctx) // may fail because another member was first
	}()
	t.Cleanup(func() { cancel(); <-done })
	return m
}

// TestMembershipKeyAloneCannotStopServers has an attacker with the membership's key, but without a certificate, impersonate
// w1 before w1 starts. The real w1 must start, receive calls, and continue.
func TestMembershipKeyAloneCannotStopServers(t *testing.T) {
	s := newSecured(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	twin := intrude(t, gossip.Config{
		Self: bourse.Member{ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: ln.Addr().String(), Tag: bourse.WorkerID("w1").Tags()[0]},
		Key:  s.key, ClusterID: servertest.Cluster(t),
	})
	broker := s.broker("--join", twin.Addr())
	s.worker("--join", broker.Addr, "--join", twin.Addr())
	api := s.client(broker)
	s.execOnW1(api)
	s.execOnW1(api)
}

// impostor presents its own valid certificate and accepts any other member's.
type impostor struct{ *admission.Credentials }

func (impostor) Key(context.Context, bourse.Member) (gossip.Key, error) { return gullible{}, nil }
func (impostor) Names(context.Context, bourse.Member) ([]string, error) { return nil, nil }

type gullible struct{}

func (gullible) Verify(_, _ []byte) bool      { return true }
func (gullible) HasTag(bourse.WorkerTag) bool { return true }

// TestWorkerDoesNotReceiveCallsForOthers has worker w2 announce w1's tag with its own certificate, before w1 starts. It
// must not receive any of w1's calls.
func TestWorkerDoesNotReceiveCallsForOthers(t *testing.T) {
	s := newSecured(t)
	creds := s.credentials("w2")
	var mu sync.Mutex
	var stolen []string
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		TLSConfig: creds.Server(bourse.RoleBroker, bourse.RoleWorker), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			stolen = append(stolen, r.Method+" "+r.URL.Path)
		}),
	}
	go func() { _ = server.ServeTLS(ln, "", "") }() // returns when the server is closed
	defer server.Close()
	thief := intrude(t, gossip.Config{
		Self: bourse.Member{ID: "w2", Role: bourse.RoleWorker, Region: "mad", Address: ln.Addr().String(), Tag: bourse.WorkerID("w1").Tags()[0]},
		Key:  s.key, ClusterID: servertest.Cluster(t), Proofs: impostor{creds},
	})
	broker := s.broker("--join", thief.Addr())
	s.worker("--join", broker.Addr, "--join", thief.Addr())
	s.execOnW1(s.client(broker))
	mu.Lock()
	defer mu.Unlock()
	if len(stolen) != 0 {
		t.Errorf("the malicious worker received the calls %v, want none", stolen)
	}
}

// TestWorkerCertificateGivesNoAccessToOthers checks that a worker's certificate does not permit reading data of another
// worker, claiming orders on it, or granting access to its volumes.
func TestWorkerCertificateGivesNoAccessToOthers(t *testing.T) {
	s := newSecured(t)
	worker := s.worker()
	stranger := s.as("w1.worker.bourse.internal", s.credentials("w2"))
	volume := string(bourse.NewVolumeID(bourse.WorkerID("w1").Tags()[0]))
	encoded := func(v any) []byte {
		b, err := codec.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, ask := range []struct {
		verb    fabric.Spec
		request any
	}{
		{fabric.VolumeExport.Spec, fabric.Export{ID: volume}},
		{fabric.VolumeExport.Spec, fabric.Export{ID: volume, Grant: "w2.zzzzzzz.AAAA"}},
		{fabric.VolumeGrant.Spec, fabric.GrantRequest{ID: volume}},
		{fabric.OrderClaim.Spec, bourse.Claim{}},
		{fabric.MachineList.Spec, fabric.MachinesQuery{}},
	} {
		target := "https://" + worker.API + ask.verb.Path()
		var body []byte
		if ask.verb.Method == http.MethodGet {
			target += "?" + base64.RawURLEncoding.EncodeToString(encoded(ask.request))
		} else {
			body = encoded(ask.request)
		}
		req, err := http.NewRequestWithContext(t.Context(), ask.verb.Method, target, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		admission.Proof{Cluster: worker.Of}.Show(req.Header)
		resp, err := stranger.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("call %s: status %s, want 403", ask.verb.Name, resp.Status)
		}
	}
	// The same calls on a connection for calls, on which only the first request is HTTP.
	caller := direct.NewOver(direct.TCP, s.credentials("w2").Client, admission.Proof{Cluster: worker.Of})
	defer caller.Close()
	to := bourse.Member{ID: "w1", Role: bourse.RoleWorker, Region: "gru", Address: worker.API, Tag: bourse.WorkerID("w1").Tags()[0]}
	_, claimed := fabric.OrderClaim.Call(t.Context(), caller, to, bourse.Claim{})
	_, destroyed := fabric.MachineDestroy.Call(t.Context(), caller, to, fabric.MachineAction{Machine: bourse.NewMachineID(to.Tag), Force: true})
	for verb, err := range map[string]error{"claim": claimed, "destroy": destroyed} {
		if bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("%s on a connection for calls: %v, want forbidden", verb, err)
		}
	}
}

// TestCredentialsAreReloaded checks that a broker refuses a token after it was removed from the file, and presents a
// new certificate, both without a restart.
func TestCredentialsAreReloaded(t *testing.T) {
	s := newSecured(t)
	broker := s.broker()
	api := s.client(broker)
	if _, err := api.Workers(t.Context()); bourse.CodeOf(err) == bourse.CodeUnauthorized { // other errors occur until the broker knows its members
		t.Fatal(err)
	}
	shown := func() string {
		c, err := tls.Dial("tcp", broker.API, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.credentials("reader").Client().RootCAs})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := shown()
	s.put("tokens", []byte("another-token-of-those-who-run-it *\n"))
	s.issue("b1", bourse.RoleBroker)
	if !servertest.Within(servertest.Timeout, func() bool {
		_, err := api.Workers(t.Context())
		return bourse.CodeOf(err) == bourse.CodeUnauthorized
	}) {
		t.Error("a removed token is still accepted")
	}
	if !servertest.Within(servertest.Timeout, func() bool { return shown() != before }) {
		t.Error("the broker still presents the old certificate")
	}
}

// TestQuoteMessagesAreIgnored checks that with certificates, a worker ignores NATS messages that request quotes,
// because anybody with access to the account can send them.
func TestQuoteMessagesAreIgnored(t *testing.T) {
	s := newSecured(t)
	relay := servertest.New(t, "nats")
	relay.Args = []string{"serve", "nats", "--listen", "127.0.0.1:0", "--ready-file", relay.Ready}
	servertest.StartAll(t, relay)
	url := "nats://" + relay.API
	broker := s.broker("--nats", url)
	s.worker("--nats", url)
	s.execOnW1(s.client(broker)) // but the worker is reachable over mutual TLS
	c, err := natsclient.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.RequestWithContext(t.Context(), "bourse."+broker.Of+".region.gru.orders", []byte(`{}`))
	if err != natsclient.ErrNoResponders { //nolint:errorlint // the client returns this error unwrapped
		t.Errorf("message that requests a quote: %v, want no responders", err)
	}
}
