package hostile

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	natsclient "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric/nats"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/gossip"
)

// secretOf returns the secret from which servers on loopback derive their keys.
func secretOf(t *testing.T, s *servertest.Server) loopback.Secret {
	t.Helper()
	secret, err := loopback.SecretOf(os.Getenv, s.Of)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// TestNeighborProcessCannotJoin starts a process next to a cluster on loopback. Without the cluster's secret, it must
// not be able to join, learn about members, or have rows accepted. With the secret it must become a member immediately.
func TestNeighborProcessCannotJoin(t *testing.T) {
	broker, worker := startPair(t)
	api := servertest.Client(t, broker)
	member := func(id bourse.WorkerID, key []byte) *gossip.Members {
		return intrude(t, gossip.Config{
			Self: bourse.Member{ID: id, Role: bourse.RoleWorker, Region: "gru", Address: "127.0.0.1:1", Tag: id.Tags()[0]},
			Key:  key, ClusterID: broker.Of, Join: []string{broker.Addr, worker.Addr},
		})
	}
	strangers := map[bourse.WorkerID]*gossip.Members{
		"no-key": member("no-key", nil), "another-key": member("another-key", bytes.Repeat([]byte{7}, 32)),
	}
	for id, m := range strangers {
		select {
		case <-m.Ready(): // the process has called both servers
		case <-time.After(30 * time.Second):
			t.Fatalf("process %s did not contact both servers", id)
		}
	}
	member("friend", secretOf(t, broker).For("gossip"))
	listed := func() (ids []bourse.WorkerID) {
		list, err := api.Workers(t.Context())
		if err != nil {
			return nil // accept this, because the broker may not know its cluster yet
		}
		for _, w := range list {
			ids = append(ids, w.ID)
		}
		return ids
	}
	var ids []bourse.WorkerID
	if !servertest.Within(servertest.Timeout, func() bool { ids = listed(); return len(ids) >= 2 }) {
		t.Fatalf("the process with the secret is not listed: %v", ids)
	}
	if len(ids) != 2 || ids[0] != "friend" || ids[1] != "w1" {
		t.Errorf("the workers are %v, want friend and w1", ids)
	}
	for id, m := range strangers {
		if known := m.Members(); len(known) > 1 {
			t.Errorf("%s knows the members %+v, want only itself", id, known)
		}
	}
	for _, path := range []string{"POST /view/push", "POST /view/pull"} {
		got := send(t, broker.API, path, []string{"Host: " + broker.API, "Bourse-Server: " + broker.Of}, "rows")
		if got.status != http.StatusUnauthorized {
			t.Errorf("%s without the secret: %d %s, want 401", path, got.status, got.body)
		}
	}
}

// startOverNATS starts a broker and a worker that communicate through a NATS server like
// that of bourse dev.
func startOverNATS(t *testing.T) (broker *servertest.Server, url string) {
	t.Helper()
	relay := servertest.New(t, "nats")
	relay.Args = []string{"serve", "nats", "--listen", "127.0.0.1:0", "--cluster", relay.Of, "--ready-file", relay.Ready}
	servertest.StartAll(t, relay)
	url = "nats://" + relay.API
	broker = servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0", "--nats", url)
	servertest.Start(t, "w1", "serve", "worker", "--region", "gru", "--name", "w1", "--data", t.TempDir(),
		"--cpus", "4", "--memory", "4GiB", "--ephemeral", "--nats", url)
	api := servertest.Client(t, broker)
	if !servertest.Within(servertest.Timeout, func() bool {
		w, err := api.Worker(t.Context(), "w1")
		return err == nil && w.Status == machinesapi.WorkerOK
	}) {
		t.Fatal("the broker does not know its worker")
	}
	return broker, url
}

// TestDevNATSRequiresAToken checks that a process next to bourse dev's NATS server can connect only with the token that
// the cluster's servers derive from their secret.
func TestDevNATSRequiresAToken(t *testing.T) {
	broker, url := startOverNATS(t)
	for name, options := range map[string][]natsclient.Option{
		"no token": nil, "another token": {natsclient.Token("guessed")}, "a user": {natsclient.UserInfo("root", "")},
		"the secret of another purpose": {natsclient.Token(secretOf(t, broker).Text("gossip"))},
	} {
		c, err := natsclient.Connect(url, options...)
		if !errors.Is(err, natsclient.ErrAuthorization) {
			t.Errorf("%s: %v, want %v", name, err, natsclient.ErrAuthorization)
		}
		if err == nil {
			c.Close()
		}
	}
	c, err := natsclient.Connect(url, natsclient.Token(secretOf(t, broker).Text("nats")))
	if err != nil {
		t.Fatalf("connect to NATS with the token: %v", err)
	}
	c.Close()
}

// TestNATSRequestsPassTheGate checks that requests over a NATS link pass the same checks as requests to a socket: those
// from browsers and those with other host names are refused. The loopback secret is not required there, because it must
// not leave the host; NATS itself decides who may connect.
func TestNATSRequestsPassTheGate(t *testing.T) {
	broker, url := startOverNATS(t)
	worker, err := servertest.Client(t, broker).Worker(t.Context(), "w1")
	if err != nil {
		t.Fatal(err)
	}
	link, err := nats.Open(t.Context(), nats.Config{URLs: []string{url}, Cluster: broker.Of, Token: secretOf(t, broker).Text("nats")})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	proof := []string{"Host: 127.0.0.1", "Bourse-Server: " + broker.Of}
	for name, c := range map[string]struct {
		header []string
		want   int
	}{
		"a server":           {proof, http.StatusOK},
		"with an origin":     {append(proof[:2:2], "Origin: http://127.0.0.1"), http.StatusForbidden},
		"with a fetch site":  {append(proof[:2:2], "Sec-Fetch-Site: same-origin"), http.StatusForbidden},
		"from nowhere":       {append(proof[:2:2], "Origin: null", "Sec-Fetch-Site: none"), http.StatusForbidden},
		"without its header": {proof[:1], http.StatusForbidden},
		"by another name":    {append([]string{"Host: evil.example"}, proof[1:]...), http.StatusMisdirectedRequest},
	} {
		conn, err := link.Dial(t.Context(), worker.Address)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Write([]byte("GET /worker/machine/list?oA HTTP/1.1\r\n" + strings.Join(c.header, "\r\n") + "\r\nConnection: close\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = resp.Body.Close()
		_ = conn.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", name, resp.StatusCode, c.want)
		}
	}
}

// TestCommandsThatDevPrints runs the export lines that bourse dev prints in a shell. With these variables another
// client must be able to call the API, and without them it must not. The printed line with https must reach the proxy.
func TestCommandsThatDevPrints(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("%v: run scripts/need-host to install it", err)
	}
	dev := servertest.StartDev(t, "--regions", "gru", "--workers", "1")
	var exports, secure []string
	for line := range strings.Lines(dev.Printed(t, "Ctrl-C stops everything")) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "export "):
			exports = append(exports, line)
		case strings.HasPrefix(line, "curl -k https://"):
			secure = append(secure, line)
		}
	}
	if len(exports) != 4 {
		t.Fatalf("bourse dev printed %q, want the address and the token, and both for flyctl", exports)
	}
	run := func(shell, script string) string {
		c := exec.CommandContext(t.Context(), shell, "-euc", script)
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "BOURSE_API_TOKEN="}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	if len(secure) != 1 || !strings.Contains(run("sh", secure[0]), "no app serves host") {
		t.Errorf("bourse dev printed %q, want a command that reaches the proxy with TLS", secure)
	}
	ask := func(api, token string) string {
		return `curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $` + token + `" "$` + api + `/v1/apps"`
	}
	both := exports[0] + "\n" + exports[1] + "\n"
	if got := run("sh", both+ask("BOURSE_API", "BOURSE_API_TOKEN")); got != "200" {
		t.Errorf("status with both lines: %s, want 200", got)
	}
	for _, api := range []string{"FLY_FLAPS_BASE_URL", "FLY_API_BASE_URL", "FLY_UIEX_BASE_URL"} { // in braces, which bash, zsh and fish support
		if got := run("bash", strings.Join(exports, "\n")+"\n"+ask(api, "FLY_API_TOKEN")); got != "200" {
			t.Errorf("status with all lines, at %s: %s, want 200", api, got)
		}
	}
	if got := run("sh", exports[0]+"\n"+ask("BOURSE_API", "BOURSE_API_TOKEN")); got != "401" {
		t.Errorf("status with only the address: %s, want 401", got)
	}
}
