package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestJoinOverNATS builds a cluster of three bare hosts, two of which accept no
// connections, using only documented commands. The NATS server requires a certificate of
// the cluster's CA, as in docs/operations.md. An app on each of the two hosts must answer
// through the first host's proxy, and both workers must renew their certificates.
func TestJoinOverNATS(t *testing.T) {
	if _, err := exec.LookPath("nats-server"); err != nil {
		t.Skipf("nats-server is not installed on this host: %v", err)
	}
	lan := newLAN(t)
	first := lan.bare("h1")
	out := first.start("bourse worker list", first.setup("init", "--region", "gru", "--nats", "tls://"+first.addr.String()+":4222")...)
	if !strings.Contains(out.printed(), "--nats") {
		t.Errorf("init did not print a join command with --nats:\n%s", out.printed())
	}
	first.runNATS()
	for name, region := range map[string]string{"h2": "gru", "h3": "mad"} {
		h := lan.bare(name)
		if err := h.do(func() error { return wallUp("card") }); err != nil {
			t.Fatal(err)
		}
		h.acceptsNothing(first)
		token, err := first.run("token", "join", "--region", region)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		joined := h.start("is part of cluster", h.setup("join", strings.TrimSpace(token), "--nats")...)
		eventually(t, waitTimeout, name+" is a worker", func() error { return first.lists(name + ` +worker +` + region + ` +ok +on NATS`) })
		t.Logf("%s was a worker %s after it began to join", name, time.Since(began))
		h.listensNowhere()

		joined.stop()
		h.allow(true)
		h.nearlyExpired(first)
		h.start(`"role":"worker"`, "serve", "--config", h.file("etc", "bourse.toml"))
		if _, err := first.run("app", "create", "web-"+name); err != nil {
			t.Fatal(err)
		}
		eventually(t, waitTimeout, "a machine runs on "+name, func() error {
			_, err := first.run("machine", "run", "host", "--app", "web-"+name, "--region", region, "--port", "80", "--", "sh", "-c",
				"exec python3 -m http.server $PORT")
			return err
		})
		t.Logf("%s ran its first machine %s after it began to join, including a restart to permit the image host", name, time.Since(began))
		client := first.client()
		eventually(t, waitTimeout, "the app on "+name+" answers through the proxy", func() error {
			return first.page(client, first.addr, "web-"+name)
		})
		eventually(t, waitTimeout, "the certificate of "+name+" is renewed", func() error { return h.renewed(bourse.RoleWorker) })
	}
	eventually(t, waitTimeout, "the first host reports no problem with its connections", first.examine)
}

// runNATS runs a NATS server on the host, with a certificate of the cluster's CA. It
// accepts only clients with such a certificate.
func (h *bareHost) runNATS() {
	h.t.Helper()
	dir := h.file("etc")
	if _, err := h.run("credentials", "cert", "--dir", dir, "--host", h.addr.String(), "nats-1"); err != nil {
		h.t.Fatal(err)
	}
	config := fmt.Sprintf(`listen: "%[1]s:4222"
tls { ca_file: "%[2]s/ca.pem", cert_file: "%[2]s/nats-1.pem", key_file: "%[2]s/nats-1.pem", verify: true }
accounts { bourse { users: [ { user: bourse, permissions: { publish: ["bourse.>", "_INBOX.>"], subscribe: ["bourse.>", "_INBOX.>"] } } ] } }
no_auth_user: bourse
`, h.addr, dir)
	if err := os.WriteFile(h.file("nats.conf"), []byte(config), 0o600); err != nil {
		h.t.Fatal(err)
	}
	server := exec.Command("nats-server", "-c", h.file("nats.conf"))
	if err := h.launch(server); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = server.Process.Kill() // the server may have exited already
		_ = server.Wait()
	})
}

// acceptsNothing checks that another host cannot connect to a listener on this host.
func (h *bareHost) acceptsNothing(from *bareHost) {
	h.t.Helper()
	var l net.Listener
	if err := h.do(func() (err error) { l, err = net.Listen("tcp", h.addr.String()+":0"); return err }); err != nil {
		h.t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(h.t.Context(), 300*time.Millisecond)
	defer cancel()
	if c, err := from.dial(ctx, "tcp", l.Addr().String()); err == nil {
		c.Close()
		h.t.Fatalf("%s accepts connections from other hosts, want none", h.name)
	}
}

// listensNowhere checks that no process on the host listens on a TCP port.
func (h *bareHost) listensNowhere() {
	h.t.Helper()
	err := h.do(func() error {
		var all error
		for _, file := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + file)
			all = errors.Join(all, err)
			for line := range strings.Lines(string(text)) {
				if words := strings.Fields(line); len(words) > 3 && words[3] == "0A" {
					all = errors.Join(all, fmt.Errorf("a process listens on a TCP port, want none: %s", line))
				}
			}
		}
		return all
	})
	if err != nil {
		h.t.Errorf("%s: %v", h.name, err)
	}
}
