package test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestRotateKeys replaces the gossip key and the secrets key of a cluster of three hosts while the proxies serve
// requests. No request may fail, and the cluster must keep its members. A host with a worker and a proxy is down at the
// beginning, so the rotation must not start before that host runs again.
func TestRotateKeys(t *testing.T) {
	hosts := bareCluster(t, servertest.Program, markOf(t))
	first, second, third := hosts[0], hosts[1], hosts[2]
	defer first.cleanUp()
	eventually(t, waitTimeout, "all servers are members", first.members)
	second.serving.stop()
	for _, row := range []string{`h2 +worker +gru +stopped since `, `h2-proxy +proxy +gru +DOWN since `} {
		eventually(t, waitTimeout, "the host is known to be down", func() error { return first.lists(row) })
	}
	before := first.key()
	_, err := first.run("credentials", "rotate", "gossip", "--wait", "1ms")
	for _, want := range []string{"h2: the worker is down", "h2-proxy: the proxy is down"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rotation while h2 is down: %v, want %q", err, want)
		}
	}
	if first.key() != before {
		t.Error("the key was replaced while h2 was down")
	}
	second.serve()
	second.ready()
	eventually(t, waitTimeout, "all servers are members again", first.members)

	client := first.client()
	requests := startLoad(t, func() error {
		return first.page(client, hosts[1].addr, "web")
	})
	began := time.Now()
	out, err := first.run("credentials", "rotate", "gossip")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("rotated within %s:\n%s", time.Since(began), out)
	for _, step := range []string{"distribute the new key          6 of 6", "use the new key                 6 of 6", "remove the old key              6 of 6"} {
		if !strings.Contains(out, step) {
			t.Errorf("the rotation's output does not contain %q", step)
		}
	}
	if strings.Contains(first.key(), strings.TrimSpace(before)) {
		t.Error("the old key is still in the file")
	}
	for _, h := range hosts[1:] {
		if h.key() != first.key() {
			t.Errorf("the key on %s differs from the key on %s", h.name, first.name)
		}
	}
	if err := first.members(); err != nil {
		t.Error(err)
	}
	third.restart() // its servers know only the new key now
	eventually(t, waitTimeout, "all servers are members, with the new key", first.members)
	rotateSecrets(first)
	rotateCA(hosts)
	requests.finish(t)
	requests.end()
	forgets(hosts[1])
}

// rotateCA replaces the cluster's CA. Afterwards no file of a host may contain the old one, except the
// old CA's own key on the first host.
func rotateCA(hosts []*bareHost) {
	first := hosts[0]
	t := first.t
	t.Helper()
	ca := func(path ...string) admission.Bundle {
		t.Helper()
		text, err := os.ReadFile(first.file(path...))
		if err != nil {
			t.Fatal(err)
		}
		b, err := admission.ParseBundle(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	old := ca("etc", "ca.pem")
	began := time.Now()
	out, err := first.run("credentials", "rotate", "ca", "--dir", first.file("new-ca"), "--keep-old")
	if both := ca("etc", "ca.pem"); err != nil || len(both.CAs) != 2 {
		t.Fatalf("after the rotation with --keep-old, there are %d CAs, want 2: %s, %v", len(both.CAs), out, err)
	}
	if out, err = first.run("credentials", "rotate", "ca", "--dir", first.file("new-ca")); err != nil || !strings.Contains(out, "the CA was replaced") {
		t.Fatalf("rotation without --keep-old: %s, %v; want \"the CA was replaced\"", out, err)
	}
	t.Logf("CA rotated within %s:\n%s", time.Since(began), out)
	fresh := ca("new-ca", "ca.pem")
	for _, h := range hosts {
		text, err := os.ReadFile(h.file("etc", "ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := admission.ParseBundle(text)
		if err != nil || !slices.Equal(got.IDs(), fresh.IDs()) {
			t.Errorf("%s trusts %v, %v; want only %v", h.name, got.IDs(), err, fresh.IDs())
		}
		for _, role := range h.roles() {
			if chain := h.chain(role); old.Issued(chain) || !fresh.Issued(chain) {
				t.Errorf("the certificate of the %s on %s was not issued by the new CA", role, h.name)
			}
		}
	}
	if err := first.members(); err != nil {
		t.Error(err)
	}
	hosts[2].restart()
	eventually(t, waitTimeout, "all servers are members, with the new CA", first.members)
	if err := first.examine(); err != nil {
		t.Error(err)
	}
}

// forgets removes the host's copies of the view. Other members' copies contain rows and placements that were signed
// with certificates of a removed CA, and the host must accept them.
func forgets(h *bareHost) {
	h.t.Helper()
	h.serving.stop()
	files, err := filepath.Glob(h.file("data", "*", "view.db*"))
	if err != nil || len(files) == 0 {
		h.t.Fatalf("no copies of the view: %v", err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			h.t.Fatal(err)
		}
	}
	h.serve()
	h.ready()
	client := h.client()
	for range 20 { // of three machines, one is on this host
		eventually(h.t, waitTimeout, "the app answers requests", func() error { return h.page(client, h.addr, "web") })
	}
}

// chain returns the certificate of one of the host's servers, followed by its issuers.
func (h *bareHost) chain(role bourse.Role) []*x509.Certificate {
	h.t.Helper()
	text, err := os.ReadFile(h.pair(role))
	if err != nil {
		h.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		h.t.Fatal(err)
	}
	chain, err := x509.ParseCertificates(slices.Concat(pair.Certificate...))
	if err != nil {
		h.t.Fatal(err)
	}
	return chain
}

// key returns the content of the host's file of gossip keys.
func (h *bareHost) key() string {
	h.t.Helper()
	text, err := os.ReadFile(h.file("etc", "gossip.key"))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// members returns an error unless all six members of a cluster of bareCluster run.
func (h *bareHost) members() error {
	out, err := h.run("member", "list")
	if err == nil && strings.Count(out, " ok ") != 6 {
		err = fmt.Errorf("not all members run:\n%s", out)
	}
	return err
}

// rotateSecrets replaces the secrets key. The old key encrypts an app's secret, so the rotation must wait until the
// secret was set again. Then the app's machine must get the new value when its restart policy starts it, although no
// broker has sent its worker the new key.
func rotateSecrets(h *bareHost) {
	h.t.Helper()
	must := func(words ...string) string {
		h.t.Helper()
		out, err := h.run(words...)
		if err != nil {
			h.t.Fatal(err)
		}
		return out
	}
	end := h.file("end")
	must("app", "create", "vault")
	defer must("app", "destroy", "vault", "--force", "--yes")
	must("secrets", "set", "--app", "vault", "WORD=first")
	must("machine", "run", "host", "--app", "vault", "--region", "gru", "--restart", "always", "--", "sh", "-c",
		`echo "the word is $WORD"; until rm `+end+` 2>&-; do sleep 0.1; done; exit 1`)
	says := func(word string) func() error {
		return func() error {
			out, err := h.run("logs", "--app", "vault")
			if err == nil && !strings.Contains(out, "the word is "+word) {
				err = fmt.Errorf("the machine printed %q, want \"the word is %s\"", out, word)
			}
			return err
		}
	}
	eventually(h.t, waitTimeout, "the machine has the secret", says("first"))

	out, err := h.run("credentials", "rotate", "secrets")
	if err == nil || !strings.Contains(err.Error(), "the old key still encrypts 1 secret of 1 app: vault") {
		h.t.Errorf("rotation while the old key encrypts a secret: %s, %v; want an error that names the app vault", out, err)
	}
	must("secrets", "set", "--app", "vault", "WORD=second")
	if out := must("credentials", "rotate", "secrets"); !strings.Contains(out, "the secrets key was replaced") {
		h.t.Errorf("rotation after the secret was set again: %s, want \"the secrets key was replaced\"", out)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		h.t.Fatal(err)
	}
	eventually(h.t, waitTimeout, "the restarted machine has the new secret", says("second"))
}
