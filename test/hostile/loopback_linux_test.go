package hostile

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// knock is a script that calls every listener as a machine of another user could, searches
// for credentials, and prints the results.
const knock = `
for url in %s; do
  echo "$(curl -s -o /dev/null -w '%%{http_code}' -X POST -H 'Bourse-Server: '%s -d '%s' "$url") $url"
done
for file in %s; do cat "$file" >/dev/null 2>&1 && echo "READ $file"; done
env | grep TOKEN
for fd in /proc/self/fd/*; do case "$(readlink "$fd")" in *%s*) echo "FD $fd";; esac; done
echo done`

// TestMachineOfAnotherUserHasNoAccess runs a machine as user nobody. The broker, the worker and the gateway must accept
// only public calls from it. It must not find credentials in files, environment variables or inherited descriptors.
func TestMachineOfAnotherUserHasNoAccess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("machines that run as other users require root")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skipf("%v: run scripts/need-host to install it", err)
	}
	data := t.TempDir()
	if err := os.Chmod(filepath.Dir(data), 0o755); err != nil { // by default, other users cannot traverse it
		t.Fatal(err)
	}
	broker, worker := startPair(t, "--pull", "--pull-listen", "127.0.0.1:0", "--data", filepath.Join(data, "w1"))
	urls := []string{
		broker.API + "/v1/apps/default/machines", broker.API + "/schedule", broker.API + "/v1/view/queries", broker.API + "/view/push", broker.API + "/v1/apps",
		worker.API + "/worker/order/claim", worker.API + "/worker/order/quote", worker.API + "/worker/machine/destroy", worker.API + "/view/push", worker.API + "/worker/metrics",
		worker.Pull + "/sched/submit", worker.Pull + "/sched/claim/x", worker.Pull + "/sched/cancel/x",
	}
	files := []string{broker.TokenFile, worker.TokenFile, filepath.Join(filepath.Dir(broker.TokenFile), broker.Of+".secret")}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%s: %v, %v; want a file of mode 0600", file, info, err)
		}
	}
	script := fmt.Sprintf(knock, strings.Join(urls, " "), broker.Of, hostOrder, strings.Join(files, " "), filepath.Dir(broker.TokenFile))
	api := servertest.Client(t, broker)
	m, err := api.Create(t.Context(), "default", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImageHost, Restart: &bourse.Restart{Policy: bourse.RestartNo},
		Init: bourse.Init{Exec: []string{"/bin/sh", "-c", script}, User: "nobody"},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Wait(t.Context(), "default", m.ID, machinesapi.WaitMachine{States: []string{"stopped"}, Timeout: bourse.Duration(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	if err := api.Logs(t.Context(), "default", m.ID, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error {
		lines = append(lines, l.Text)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(lines) != len(urls)+1 || lines[len(urls)] != "done" {
		t.Fatalf("the machine printed %q, want %d answers and no credentials", lines, len(urls))
	}
	for i, line := range lines[:len(urls)] {
		if !strings.HasPrefix(line, "401 ") && !strings.HasPrefix(line, "403 ") {
			t.Errorf("request to %s by user nobody: %s, want 401 or 403", urls[i], line)
		}
	}
	list, _, err := api.Machines(t.Context(), "default", machinesapi.ListMachines{})
	if err != nil || len(list) != 1 {
		t.Errorf("%d machines (%v), want only the machine of user nobody", len(list), err)
	}
}

// TestLoopbackRequiresATokenUnlessInsecure checks that without a token, a broker on loopback answers only public calls,
// and that with --insecure it requires no token.
func TestLoopbackRequiresATokenUnlessInsecure(t *testing.T) {
	asking, _ := startPair(t)
	var open *servertest.Server
	t.Run("insecure", func(t *testing.T) { // a separate cluster
		open, _ = startPairOf(t, []string{"--insecure"}, []string{"--insecure"})
		if got := send(t, open.API, "GET /v1/workers", []string{"Host: " + open.API}, ""); got.status != http.StatusOK {
			t.Errorf("an insecure broker without a token: %d %s, want 200", got.status, got.body)
		}
	})
	if open.TokenFile != "" {
		t.Errorf("an insecure broker reports the token file %s, want none", open.TokenFile)
	}
	for _, c := range []struct {
		path string
		want int
	}{
		{"/v1/health", http.StatusOK},
		{"/v1/platform/regions", http.StatusOK},
		{"/v1/apps", http.StatusUnauthorized},
		{"/v1/workers", http.StatusUnauthorized},
		{"/v1/apps/default/machines", http.StatusUnauthorized},
	} {
		if got := send(t, asking.API, "GET "+c.path, []string{"Host: " + asking.API}, ""); got.status != c.want {
			t.Errorf("%s without a token: %d %s, want %d", c.path, got.status, got.body, c.want)
		}
	}
}

// TestCommandsFindTheToken checks that the command line finds the token of the API that it calls. A killed broker must
// have the same token after a restart, and a stopped broker must leave no token behind. No server's environment may
// contain the token.
func TestCommandsFindTheToken(t *testing.T) {
	broker, worker := startPair(t)
	list := func() ([]byte, error) {
		c := exec.CommandContext(t.Context(), servertest.Program, "--api", broker.API, "worker", "list", "--json")
		return c.CombinedOutput()
	}
	if out, err := list(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	broker.Settle()
	broker.Args = append(broker.Args, "--join", worker.Addr)
	before, err := os.ReadFile(broker.TokenFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(broker.TokenFile)
	if err != nil || string(after) != string(before) {
		t.Errorf("the token changed after a kill, want the same token (%v)", err)
	}
	var out []byte
	if !servertest.Within(servertest.Timeout, func() bool { // a restarted broker first has to learn about its cluster
		out, err = list()
		return err == nil
	}) {
		t.Errorf("command after a kill: %v: %s", err, out)
	}
	if err := broker.Cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := broker.Cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(broker.TokenFile); err == nil {
		t.Errorf("the token file %s still exists after a clean stop", broker.TokenFile)
	}
}

// TestDevPrintsItsTokenFile checks that bourse dev prints the name of the file with its token, and leaves no
// credentials behind.
func TestDevPrintsItsTokenFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	t.Setenv("BOURSE_RUNTIME_DIR", dir)
	t.Run("running", func(t *testing.T) {
		d := servertest.StartDev(t, "--regions", "gru", "--workers", "1")
		token, err := os.ReadFile(d.TokenFile)
		if err != nil {
			t.Fatalf("token_file of the ready file: %v", err)
		}
		for token, want := range map[string]int{strings.TrimSpace(string(token)): http.StatusOK, "wrong": http.StatusUnauthorized} {
			got := send(t, strings.TrimPrefix(d.API, "http://"), "GET /v1/workers", []string{"Host: localhost", "Authorization: Bearer " + token}, "")
			if got.status != want {
				t.Errorf("with token %q: %d %s, want %d", token, got.status, got.body, want)
			}
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("a dev cluster left %v (%v), want no files", left, err)
	}
}
