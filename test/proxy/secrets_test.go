package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestSecretsWithoutABroker checks that the secrets of existing machines do not depend on
// brokers. With no broker running, a proxy's request must start a machine, a restart policy
// must take effect even after the worker's daemon was killed, and a standby must start for
// a machine whose worker is lost. Each program must get its app's secret.
func TestSecretsWithoutABroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := filepath.Join(dir, "secrets.key")
	if err := os.WriteFile(keys, seal.Generate(), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &house{T: t, broker: servertest.New(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0", "--credentials", filepath.Dir(keys))}
	servertest.StartAll(t, h.broker)
	join := []string{"--join", h.broker.Addr}
	h.furnish(2, 1, append(join, "--standby-after", "2s", "--idle-after", "1h"), join, h.broker.Launch)
	h.workers[0].Settle()
	h.app("vault")
	if _, err := h.api.Secrets("vault").Set(t.Context(), "PASSWORD", "hunter2"); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("hunter2"))
	digest := hex.EncodeToString(sum[:])
	// At each start, the program appends the digest of its secret to a file.
	file := func(name string) string { return filepath.Join(dir, name) }
	note := func(name string) string { return `printf %s "$PASSWORD" | sha256sum >> ` + file(name) + `; ` }
	started := func(what, name string, times int) {
		t.Helper()
		h.eventually(what, func() error {
			text, err := os.ReadFile(file(name))
			if err == nil && strings.Count(string(text), "\n") != times {
				err = fmt.Errorf("%d starts, want %d", strings.Count(string(text), "\n"), times)
			}
			if err == nil && strings.Count(string(text), digest) != times {
				t.Fatalf("%s: the program did not receive the secret: %q", what, text)
			}
			return err
		})
	}

	web := h.order(kindWeb)
	web.Config.Init.Exec = []string{"/bin/sh", "-c", note("web") + "exec " + web.Config.Init.Exec[0]}
	asked := h.run("vault", web, "w1")
	// The program exits when a file exists whose name is its number of starts.
	failing := machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 16}, Restart: &bourse.Restart{Policy: bourse.RestartAlways},
		Init: bourse.Init{Exec: []string{"/bin/sh", "-c", note("failing") + `end=` + file("end") + `$(wc -l < ` + file("failing") + `); until [ -e $end ]; do sleep 0.1; done; exit 1`}},
	}}
	primary := h.run("vault", failing, "w1")
	spare := machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 16}, Init: bourse.Init{Exec: []string{"/bin/sh", "-c", note("spare") + "exec sleep 600"}},
	}}
	spare.Config.Standbys = []bourse.MachineID{primary.ID}
	h.run("vault", spare, "w2")
	started("the machine for the proxy is created", "web", 1)
	started("the failing machine is created", "failing", 1)
	h.routed(http.DefaultClient, "http://"+h.proxies[0].Web[0]+"/", "vault.localhost")
	h.stop("vault", asked.ID)
	h.agreed()
	if err := h.broker.Kill(); err != nil {
		t.Fatal(err)
	}

	if _, err := get(http.DefaultClient, "http://"+h.proxies[0].Web[0]+"/", "vault.localhost", "second"); err != nil {
		t.Errorf("request without a running broker: %v", err)
	}
	started("a request starts the machine", "web", 2)
	end := func(n int) {
		t.Helper()
		if err := os.WriteFile(file("end"+strconv.Itoa(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	end(1)
	started("its restart policy starts the machine", "failing", 2)
	if err := h.workers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	end(2)
	if err := h.workers[0].Start(); err != nil {
		t.Fatal(err)
	}
	started("its restart policy starts the machine after its worker's restart", "failing", 3)
	if err := h.workers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	started("the spare starts", "spare", 1)
}
