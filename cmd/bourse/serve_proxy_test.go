package main

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
)

// TestProxyIsAMember checks that a proxy joins the membership, learns of the other members, and leaves cleanly, with
// and without certificates.
func TestProxyIsAMember(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	ca.file("tokens", "a-token-that-is-not-guessed *\n")
	secure := func(id bourse.WorkerID, role bourse.Role, more ...string) []string {
		return append(more, ca.flags(id, role)...)
	}
	plain := func(_ bourse.WorkerID, _ bourse.Role, more ...string) []string { return more }
	for name, with := range map[string]func(bourse.WorkerID, bourse.Role, ...string) []string{"certificates": secure, "loopback": plain} {
		t.Run(name, func(t *testing.T) {
			b := startServer(t, with("b-1", bourse.RoleBroker, "broker", "--name", "b-1", "--listen", "127.0.0.1:0")...)
			p := startServer(t, with("p-1", bourse.RoleProxy, "proxy", "--name", "p-1", "--region", "gru", "--http", "127.0.0.1:0=any", "--join", b.Gossip)...)
			if p.Role != bourse.RoleProxy || p.Region != "gru" || p.Members != 2 {
				t.Errorf("ready message: %+v, want a proxy in gru with 2 members", p.Ready)
			}
			p.end(t, syscall.SIGTERM)
			b.end(t, syscall.SIGTERM)
		})
	}
	launch(t, secure("w-1", bourse.RoleWorker, "proxy", "--name", "w-1", "--http", "127.0.0.1:0")...).refused(t, 2, "not to proxy w-1")
}

// TestEmptyCertificateDirectoryIsReported checks that a warning is logged if the certificate directory is empty,
// because HTTPS would not work.
func TestEmptyCertificateDirectoryIsReported(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	p := &proxyServer{server: &server{log: slog.New(slog.NewTextHandler(&log, nil))}, config: &serve.ProxyConfig{}}
	p.config.Certs.Dir = t.TempDir()
	if err := p.openCertificates(0); err != nil || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), p.config.Certs.Dir) {
		t.Errorf("%v, logged %q", err, log.String())
	}
}
