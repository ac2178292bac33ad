package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// secure is a cluster with certificates and tokens. The attacker has the certificate of
// worker w2.
type secure struct {
	t              *testing.T
	dir            string
	ca             *admission.CA
	broker, worker *servertest.Server
	api            *machinesapi.Client
	forger         *admission.Credentials
	epoch          uint64
}

const operatorToken = "a-token-of-those-who-run-it"

func startSecure(t *testing.T) *secure {
	t.Helper()
	s := &secure{t: t, dir: t.TempDir(), epoch: uint64(time.Now().UnixMilli())}
	var err error
	if s.ca, err = admission.NewCA("test", time.Now()); err != nil {
		t.Fatal(err)
	}
	s.file("ca.pem", s.ca.Pair().Cert)
	s.file("gossip.key", []byte("000102030405060708090a0b0c0d0e0f\n"))
	s.file("tokens", []byte(operatorToken+" *\n"))
	s.broker = servertest.Start(t, "b1", append([]string{
		"serve", "broker", "--name", "b1", "--listen", "127.0.0.1:0",
	}, s.credentials("b1", bourse.RoleBroker)...)...)
	s.worker = servertest.Start(t, "w1", append([]string{
		"serve", "worker", "--name", "w1", "--region", "gru", "--data", filepath.Join(s.dir, "w1"), "--cpus", "4", "--memory", "4GiB",
		"--ephemeral", "--join", s.broker.Addr,
	}, s.credentials("w1", bourse.RoleWorker)...)...)
	s.credentials("w2", bourse.RoleWorker)
	s.forger, err = admission.Load(admission.Files{CA: s.path("ca.pem"), Pair: s.path("w2.pem")})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.ca.Pair().Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	s.api = &machinesapi.Client{BaseURL: "https://" + s.broker.API, Token: operatorToken, HTTP: &http.Client{Transport: transport}}
	return s
}

func (s *secure) path(name string) string { return filepath.Join(s.dir, name) }

func (s *secure) file(name string, text []byte) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *secure) credentials(id bourse.WorkerID, role bourse.Role) []string {
	s.t.Helper()
	pair, err := s.ca.Issue(admission.Identity{ID: id, Role: role}, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	s.file(string(id)+".pem", pair.PEM())
	return []string{"--credentials", s.dir}
}

// call sends a request to a server as worker w2, and returns the body of the reply.
func (s *secure) call(to *servertest.Server, role bourse.Role, method, path string, body []byte) []byte {
	s.t.Helper()
	config := s.forger.Client()
	config.ServerName = admission.Identity{ID: bourse.WorkerID(to.Name), Role: role}.ServerName()
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+to.API+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	admission.Proof{Cluster: to.Of}.Show(req.Header)
	req.Header.Set("Bourse-View", checkText(to.Of))
	resp, err := transport.RoundTrip(req)
	if err != nil {
		s.t.Fatalf("%s of %s: %v", path, to.Name, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("call %s of %s: status %d, want 200: %s, %v", path, to.Name, resp.StatusCode, text, err)
	}
	return text
}

// check returns the hash of a cluster's id that each envelope contains.
func check(cluster string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, cluster) // Write never fails
	return h.Sum64()
}

func checkText(cluster string) string { return fmt.Sprintf("1-%016x", check(cluster)) }

// push sends transactions to both servers in the same way as a member.
func (s *secure) push(transactions ...[]byte) {
	s.t.Helper()
	envelope := binary.BigEndian.AppendUint64([]byte{1}, check(s.broker.Of))
	for _, tx := range transactions {
		envelope = append(binary.AppendUvarint(append(envelope, 2), uint64(len(tx))), tx...)
	}
	s.call(s.broker, bourse.RoleBroker, http.MethodPost, "/view/push", envelope)
	s.call(s.worker, bourse.RoleWorker, http.MethodPost, "/view/push", envelope)
}

// write returns a transaction that claims to be from a site and is signed with the key of
// w2.
func (s *secure) write(site bourse.WorkerID, epoch, seq uint64, rows ...wire.Row) []byte {
	s.t.Helper()
	birth, key := s.forger.Own()
	b, err := wire.Encode(&wire.Transaction{
		Position: wire.Position{Stream: wire.Stream{Site: site, Epoch: epoch}, Seq: seq}, At: time.Now().UnixNano(), Rows: rows,
	}, wire.SigningKey{Cluster: s.broker.Of, Birth: birth, Key: key})
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// health returns a server's report about its view.
func (s *secure) health(of *servertest.Server, role bourse.Role) (out struct {
	View    view.Health `json:"view"`
	Traffic struct {
		Refused struct {
			Forged uint64 `json:"forged"`
		} `json:"refused"`
	} `json:"traffic"`
},
) {
	s.t.Helper()
	if err := json.Unmarshal(s.call(of, role, http.MethodGet, "/view/health", nil), &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// TestForgingMember uses a worker's certificate to write arbitrary data to other members' views. It must not be able to
// cancel orders, take over apps, hide workers, or block updates. Only data about itself may be accepted.
func TestForgingMember(t *testing.T) {
	s := startSecure(t)
	var app machinesapi.App
	if !servertest.Within(servertest.Timeout, func() (ok bool) {
		var err error
		app, err = s.api.CreateApp(t.Context(), machinesapi.CreateApp{Name: "shop", Org: "acme"})
		return err == nil
	}) {
		t.Fatal("the app could not be created")
	}
	var made machinesapi.CreatedMachine
	if !servertest.Within(servertest.Timeout, func() (ok bool) {
		var err error
		made, err = s.api.Create(t.Context(), "shop", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: "host", Init: bourse.Init{Exec: []string{"sleep", "600"}},
		}}, "")
		return err == nil
	}) {
		t.Fatal("the machine could not be created")
	}

	clock := wire.Clock(time.Now().UnixMilli()) << 16
	canceled := inventory.CanceledRow(made.OrderID, "w1")
	theft := inventory.AppRow(bourse.App{Name: "shop", ID: app.ID, Org: "thief", CreatedAt: time.Unix(1, 0)})
	invented := inventory.CertifiedRow(&inventory.CertifiedMember{ID: "p9", Role: bourse.RoleProxy, IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
	shared := []wire.Row{canceled, theft, invented, wire.DeletedRow(wire.TableSecrets, "shop/a")}
	for i := range shared {
		shared[i].Clock = clock
		delete(shared[i].Columns, "deleted_at")
	}
	machine := wire.Row{Table: wire.TableMachines, Key: string(made.Machine.ID), Columns: map[string]wire.Value{"app": "shop", "state": "destroyed"}}
	theirs := s.health(s.broker, bourse.RoleBroker)
	var w1 wire.Position
	if !servertest.Within(servertest.Timeout, func() bool { // wait until the worker has published its own rows
		for _, h := range theirs.View.Streams {
			if h.Site == "w1" {
				w1 = h.Position
				return true
			}
		}
		theirs = s.health(s.broker, bourse.RoleBroker)
		return false
	}) {
		t.Fatal("the broker has no stream of w1")
	}
	s.push(
		s.write("w2", s.epoch, 1, append(shared, wire.Row{Table: wire.TableVolumes, Key: "vol_of_w2", Columns: map[string]wire.Value{"app": "shop"}})...), // as itself
		s.write("b1", theirs.View.Self.Epoch, theirs.View.Self.Seq+1, shared...),                                                                          // in the broker's name
		s.write("b1", s.epoch+1000, 1, shared...),
		s.write("w1", w1.Epoch, w1.Seq+1, machine), // in the worker's stream, in a new one, and in one that outlasts all others
		s.write("w1", s.epoch+1000, 1, machine),
		s.write("w1", 1<<53-1, 1),
		s.write("w2", 1<<53-1, 1),
	)
	madeUp := make([][]byte, 0, 100)
	for n := range 100 {
		madeUp = append(madeUp, s.write(bourse.WorkerID("made-up-"+string(rune('a'+n%26))+string(rune('a'+n/26))), s.epoch, 1))
	}
	s.push(madeUp...)

	for _, x := range []struct {
		server *servertest.Server
		role   bourse.Role
	}{{s.broker, bourse.RoleBroker}, {s.worker, bourse.RoleWorker}} {
		h := s.health(x.server, x.role)
		sites := map[bourse.WorkerID]bool{}
		for _, stream := range h.View.Streams {
			sites[stream.Site] = true
			if stream.Site == "w1" && stream.Epoch != w1.Epoch {
				t.Errorf("%s has the forged stream %v of w1", x.server.Name, stream.Stream)
			}
		}
		if len(sites) != 3 || !sites["w1"] || !sites["w2"] || !sites["b1"] {
			t.Errorf("%s has streams of %v, want only w1, w2 and b1", x.server.Name, sites)
		}
		if h.View.Quarantine.Count < len(shared) || h.Traffic.Refused.Forged < 100 {
			t.Errorf("%s has %d rows in quarantine and has rejected %d transactions as forged, want at least %d and 100", x.server.Name, h.View.Quarantine.Count, h.Traffic.Refused.Forged, len(shared))
		}
	}
	// If the attack had succeeded, orders would fail; they must still be filled on w1.
	if got, err := s.api.App(t.Context(), "shop"); err != nil || got.ID != app.ID || got.Organization.Slug != "acme" {
		t.Errorf("the app is %+v, %v; want %s of acme", got, err, app.ID)
	}
	if m, err := s.api.Machine(t.Context(), "shop", made.Machine.ID); err != nil || m.State != made.Machine.State {
		t.Errorf("the machine is %s, %v, want %s", m.State, err, made.Machine.State)
	}
	if members, err := s.api.Members(t.Context()); err != nil || slices.ContainsFunc(members, func(m machinesapi.Member) bool { return m.ID == "p9" }) {
		t.Errorf("the members are %+v, %v; want none named p9", members, err)
	}
	if workers, err := s.api.Worker(t.Context(), "w1"); err != nil || workers.Status != machinesapi.WorkerOK {
		t.Errorf("the worker is %+v, %v; want status ok", workers, err)
	}
}
