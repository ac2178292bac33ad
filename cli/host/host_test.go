package host

import (
	"bytes"
	"crypto/ecdsa"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/serve"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

func newSetup(t *testing.T) *setup {
	t.Helper()
	dir := t.TempDir()
	return &setup{
		shell:  &cli.Shell{Env: cli.Env{Now: time.Now, Getenv: func(string) string { return "" }}},
		config: filepath.Join(dir, "etc", "bourse.toml"), data: filepath.Join(dir, "data"),
		name: "h1", region: "gru", address: "10.0.0.1", roles: []string{"broker", "proxy", "worker"},
	}
}

// init never overwrites credentials, because they may be the only copy of a cluster's
// keys.
func TestCreateCredentials(t *testing.T) {
	h := newSetup(t)
	if err := h.makeDirs(); err != nil {
		t.Fatal(err)
	}
	one, err := h.createCredentials("c1")
	if err != nil {
		t.Fatal(err)
	}
	dir := h.dir()
	for _, name := range []bourse.WorkerID{"h1", "h1-broker"} {
		creds, err := admission.Load(admission.Files{CA: dir.CA(), Pair: dir.Server(name)})
		if err != nil || creds.Self().ID != name || !creds.RenewalDue(time.Now().Add(4*24*time.Hour)) {
			t.Errorf("credentials of %s: %v", name, err)
		}
	}
	if one.API != "https://10.0.0.1:4280" || one.Token == "" || !strings.Contains(one.CA, "CERTIFICATE") {
		t.Errorf("context %+v", one)
	}
	before, err := os.ReadFile(dir.CAKey())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir.CA()); err != nil {
		t.Fatal(err)
	}
	if _, err := h.createCredentials("c1"); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("with existing files: %v, want already exists", err)
	}
	if after, err := os.ReadFile(dir.CAKey()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the CA's key has changed: %v", err)
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v; want 0600", e.Name(), info.Mode(), err)
		}
	}
}

// init writes a configuration that serve can read. It does not set up a host that
// already has a configuration.
func TestWrite(t *testing.T) {
	servers := []string{"tls://nats.example.com"}
	for name, c := range map[string]struct {
		to           networks
		broker       bool // whether the broker and the proxy use NATS
		worker, both bool // whether the worker uses NATS, and the other servers use both networks
	}{
		"direct": {to: networks{address: "10.0.0.1", join: []string{"10.0.0.9:7947"}}},
		"NATS":   {to: networks{nats: servers}, broker: true, worker: true},
		"both":   {to: networks{address: "10.0.0.1", nats: servers}, broker: true, both: true},
	} {
		h := newSetup(t)
		if err := h.makeDirs(); err != nil {
			t.Fatal(err)
		}
		if _, err := h.createCredentials("c1"); err != nil {
			t.Fatal(err)
		}
		if err := h.write("c1", c.to); err != nil {
			t.Fatal(err)
		}
		file, err := serve.ReadFile(h.config)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]bourse.Role{bourse.RoleBroker, bourse.RoleWorker, bourse.RoleProxy}, file.Roles()); diff != "" {
			t.Errorf("%s: roles (-want +got):\n%s", name, diff)
		}
		for _, s := range serversOf(t, h) {
			want := c.worker
			if s.Role != bourse.RoleWorker {
				want = c.broker
			}
			if s.NATS.Set() != want || s.NATS.Both != (c.both && s.Role != bourse.RoleWorker) || s.Address.IsValid() != (c.to.address != "") {
				t.Errorf("%s: the %s has address %v and NATS %+v", name, s.Role, s.Address, s.NATS)
			}
		}
		for _, comments := range []string{"#", ""} { // the defaults in comments must be valid, too
			text, err := os.ReadFile(h.config)
			if err == nil {
				err = os.WriteFile(h.config, regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAll(text, []byte(comments+"$1")), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if servers, err := serve.CheckFile(h.config); err != nil || len(servers) != len(h.roles) {
				t.Errorf("%s: %d servers, %v; want %d", name, len(servers), err, len(h.roles))
			}
		}
		if err := h.checkNoConfig(); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
			t.Errorf("%s: second setup: %v, want already exists", name, err)
		}
	}
}

// serversOf returns the configurations of a host's servers. The host must have all credentials.
func serversOf(t *testing.T, h *setup) []serve.Server {
	t.Helper()
	file, err := serve.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	servers, err := file.Servers()
	if err != nil {
		t.Fatal(err)
	}
	return servers
}

// If join is interrupted and repeated, it uses the same keys.
func TestPendingKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h1.pem")
	first, text, err := pendingKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := pendingKey(path)
	if err != nil || !first.Equal(again) {
		t.Errorf("the key has changed: %v", err)
	}
	if err := wholefile.Write(path, append([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, _, err = pendingKey(path); err != nil || !first.Equal(again) {
		t.Errorf("the key has changed after the certificate was stored: %v", err)
	}
	for _, bad := range []string{"", "nothing", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, _, err := pendingKey(path); bourse.CodeOf(err) != bourse.CodeInvalid || key != (*ecdsa.PrivateKey)(nil) {
			t.Errorf("%q: %v, want invalid", bad, err)
		}
	}
}

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*setup)
		want   string
	}{
		"name":    {func(h *setup) { h.name = "a.b" }, "--name"},
		"role":    {func(h *setup) { h.roles = []string{"boss"} }, "--role"},
		"address": {func(h *setup) { h.address = "0.0.0.0" }, "--address"},
		"no IP":   {func(h *setup) { h.address = "localhost" }, "--address"},
	} {
		h := newSetup(t)
		c.change(h)
		if err := h.find(t.Context()); bourse.CodeOf(err) != bourse.CodeInvalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error that names %s", name, err, c.want)
		}
	}
	h := newSetup(t)
	h.roles = []string{"worker", "worker"}
	if err := h.find(t.Context()); err != nil || len(h.roles) != 1 {
		t.Errorf("found %v: %v", h.roles, err)
	}
}

func TestCanListen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for name, c := range map[string]struct {
		network, address string
		want             bourse.Code
	}{
		"any port":        {"tcp", "127.0.0.1:0", ""},
		"TCP, in use":     {"tcp", l.Addr().String(), bourse.CodeConflict},
		"UDP, in use":     {"udp", p.LocalAddr().String(), bourse.CodeConflict},
		"of another host": {"tcp", "240.0.0.1:0", bourse.CodeInvalid},
	} {
		if err := canListen(t.Context(), c.network, c.address, bourse.RoleWorker); bourse.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// On a host without Bourse's package, the package's unit is written with the paths of the host's program and
// configuration.
func TestUnitOf(t *testing.T) {
	text := unitOf("/opt/bourse", "/srv/bourse.toml")
	for _, line := range []string{"ExecStart=/opt/bourse serve --config /srv/bourse.toml", "ExecReload=/opt/bourse serve --config /srv/bourse.toml --check", "ConditionPathExists=/srv/bourse.toml"} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("the unit does not contain %s:\n%s", line, text)
		}
	}
}
