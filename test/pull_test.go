package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// gate is a gateway, and a broker that places orders with it.
type gate struct {
	t      *testing.T
	worker *server
	api    *machinesapi.Client
	http   *http.Client
	addr   string // base URL of the gateway's /sched endpoints
}

func startGate(t *testing.T) *gate {
	t.Helper()
	broker := startServer(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0")
	worker := startServer(t, "gate", "serve", "worker", "--region", "gru", "--name", "gate", "--data", filepath.Join(t.TempDir(), "gate"),
		"--cpus", "1", "--memory", "1GiB", "--ephemeral", "--join", broker.Addr, "--pull", "--pull-listen", "127.0.0.1:0", "--pull-lost", "10s")
	if worker.Pull == "" {
		t.Fatal("the ready file does not contain the gateway's address")
	}
	worker.Settle()
	worker.Args = append(worker.Args, "--pull-listen", worker.Pull)
	g := &gate{t: t, worker: worker, api: client(t, broker), http: worker.HTTP(t), addr: "http://" + worker.Pull}
	if !within(waitTimeout, func() bool { _, err := g.order("true"); return err != nil && strings.Contains(err.Error(), "poller") }) {
		t.Fatal("the broker did not ask the gateway")
	}
	return g
}

// order places an order for a job with the broker.
func (g *gate) order(script string) (machinesapi.CreatedMachine, error) {
	return g.api.Create(g.t.Context(), app, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: bourse.ImagePull, Init: bourse.Init{Exec: []string{"sh", "-c", script}}, Restart: &bourse.Restart{Policy: bourse.RestartNo},
	}}, "")
}

// call sends a request to the gateway, and returns the status and the body.
func (g *gate) call(method, path, body string) (int, map[string]any) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.addr+"/sched/"+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Bourse-Ticket", "a client's own, of these tests")
	resp, err := g.http.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // if data is missing, the check below fails
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return resp.StatusCode, out
}

// submit submits a job. It retries until a poller accepts the job, because a poller may be
// between two jobs.
func (g *gate) submit(name, script string) {
	g.t.Helper()
	body, err := json.Marshal(map[string]string{"name": name, "command": script})
	if err != nil {
		g.t.Fatal(err)
	}
	var said map[string]any
	if !within(waitTimeout, func() bool {
		var status int
		status, said = g.call("POST", "submit", string(body))
		return status == http.StatusOK
	}) {
		g.t.Fatalf("no poller accepted job %s: %v", name, said)
	}
}

// ended waits until a job has ended, and returns its status.
func (g *gate) ended(name string) map[string]any {
	g.t.Helper()
	var said map[string]any
	if !within(waitTimeout, func() bool {
		_, said = g.call("GET", "status/"+name, "")
		return said["state"] == "stopped"
	}) {
		g.t.Fatalf("job %s did not end: %v", name, said)
	}
	return said
}

// documented returns the example of a poller script in the documentation.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "pull.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "<!-- file: gate poller.sh -->\n```sh\n")
	script, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatal("docs/pull.md has no script poller.sh")
	}
	if lines := strings.Count(strings.TrimPrefix(script, "#!/bin/sh\n"), "\n"); lines > 10 {
		t.Errorf("the poller script has %d lines, want at most 10", lines)
	}
	return script
}

// shellWorker runs that script until the test ends.
func (g *gate) shellWorker() {
	g.t.Helper()
	for _, program := range []string{"sh", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			g.t.Skipf("%v: scripts/need-host installs it", err)
		}
	}
	dir := g.t.TempDir()
	file := filepath.Join(dir, "worker.sh")
	if err := os.WriteFile(file, []byte(documented(g.t)), 0o600); err != nil {
		g.t.Fatal(err)
	}
	c := exec.Command("sh", file, g.addr, g.worker.TokenFile)
	c.Dir, c.Stdout, c.Stderr = dir, g.t.Output(), g.t.Output()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // kills the loop, its curl processes and its job
		_ = c.Wait()                                      // returns the kill as an error
	})
}

// TestShellLoopAsAWorker runs the shell loop in the documentation as a worker. It must run submitted jobs and the
// broker's orders, stop canceled jobs, and continue after the gateway was killed.
func TestShellLoopAsAWorker(t *testing.T) {
	g := startGate(t)
	if status, said := g.call("POST", "submit", `{"command": "true"}`); status != http.StatusUnprocessableEntity {
		t.Fatalf("job without a poller: %d %v, want a refusal", status, said)
	}
	if _, err := g.order("true"); bourse.CodeOf(err) != bourse.CodeInsufficient || !strings.Contains(err.Error(), "poller") {
		t.Errorf("order without a poller: %v, want a refusal with that reason", err)
	}
	g.shellWorker()
	g.shellWorker()

	g.submit("hello", `echo "it's $FLY_REGION"; echo oops >&2; exit 3`)
	if s := g.ended("hello"); s["exit_code"] != 3.0 || s["output"] != "it's gru\noops\n" {
		t.Errorf("job hello: %v, want code 3 and both lines", s)
	}

	var created machinesapi.CreatedMachine
	if !within(waitTimeout, func() bool {
		var err error
		created, err = g.order("echo from the exchange")
		return err == nil
	}) {
		t.Fatal("no order was filled, although a poller waits for work")
	}
	if _, err := g.api.Wait(t.Context(), app, created.ID, machinesapi.WaitMachine{States: []string{"stopped"}, Timeout: bourse.Duration(20 * time.Second)}); err != nil {
		t.Errorf("the order's machine: %v", err)
	}
	var lines []string
	err := g.api.Logs(t.Context(), app, created.ID, machinesapi.LogQuery{}, func(l machinesapi.LogLine) error {
		lines = append(lines, l.Text)
		return nil
	})
	if err != nil || len(lines) != 1 || lines[0] != "from the exchange" {
		t.Errorf("log of the order's machine: %q, %v; want only \"from the exchange\"", lines, err)
	}

	mark := "pull-mark-" + strconv.Itoa(os.Getpid())
	g.submit("long", "exec sleep 1000; : "+mark) // the shell's command line contains the mark until the shell executes sleep
	if !within(waitTimeout, func() bool {
		list, _, err := g.api.Machines(t.Context(), app, machinesapi.ListMachines{})
		return err == nil && hasMachine(list, "long", bourse.StateStarted)
	}) {
		t.Error("the broker does not list the job")
	}
	if status, said := g.call("POST", "cancel/long", ""); status != http.StatusOK {
		t.Errorf("cancel the job: status %d %v, want 200", status, said)
	}
	if s := g.ended("long"); s["exit_code"] != 143.0 {
		t.Errorf("job long: %v, want its poller to report code 143", s)
	}

	dir := t.TempDir()
	g.submit("bounced", fmt.Sprintf("touch %[1]s/runs; while [ ! -e %[1]s/go ]; do sleep 0.05; done; echo $$ >>%[1]s/runs; exit 7", dir))
	if !within(waitTimeout, func() bool { _, err := os.Stat(filepath.Join(dir, "runs")); return err == nil }) {
		t.Fatal("the job did not start")
	}
	if err := g.worker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil { // the job exits while the gateway is down
		t.Fatal(err)
	}
	if !within(waitTimeout, func() bool { text, _ := os.ReadFile(filepath.Join(dir, "runs")); return len(text) > 0 }) {
		t.Fatal("the job did not end")
	}
	if err := g.worker.Start(); err != nil {
		t.Fatal(err)
	}
	if s := g.ended("bounced"); s["exit_code"] != 7.0 {
		t.Errorf("job bounced: %v, want code 7", s)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "runs")); strings.Count(string(text), "\n") != 1 {
		t.Errorf("job bounced recorded the starts %q, want one", text)
	}
	g.submit("after", "exit 0")
	g.ended("after")
}

func hasMachine(list []machinesapi.Machine, name string, state bourse.State) bool {
	for _, m := range list {
		if m.Name == name && m.State == state {
			return true
		}
	}
	return false
}

// TestKillTheGateway kills the gateway repeatedly while pollers and clients continue. Jobs that the gateway has
// accepted must neither run twice nor be lost.
func TestKillTheGateway(t *testing.T) {
	g := startGate(t)
	const pollers, clients, bounces = 4, 3, 8
	stop := make(chan struct{})
	over := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	var mu sync.Mutex
	runs, promised := map[string]int{}, map[string]bool{}
	var polling, submitting sync.WaitGroup
	for p := range pollers {
		polling.Go(func() {
			for !over() {
				status, job := g.call("GET", "jobs?wait=1s", "")
				if status != http.StatusOK {
					pause(t.Context(), time.Millisecond)
					continue
				}
				name := job["name"].(string)
				if status, _ := g.call("POST", fmt.Sprintf("claim/%s?by=poller-%d", name, p), ""); status != http.StatusOK {
					continue
				}
				mu.Lock()
				runs[name]++
				mu.Unlock()
				if !within(waitTimeout, func() bool {
					status, _ := g.call("POST", "release/"+name, `{"exit_code": 5}`)
					return status == http.StatusOK || status == http.StatusNotFound
				}) {
					t.Errorf("the gateway did not accept the end of job %s", name)
				}
			}
		})
	}
	for c := range clients {
		submitting.Go(func() {
			for n := 0; !over(); n++ {
				name := fmt.Sprintf("job-%d-%d", c, n)
				if status, _ := g.call("POST", "submit", fmt.Sprintf(`{"name": %q, "command": "true", "timeout": "2s"}`, name)); status == http.StatusOK {
					mu.Lock()
					promised[name] = true
					mu.Unlock()
				} else {
					pause(t.Context(), 2*time.Millisecond)
				}
			}
		})
	}
	for range bounces {
		mu.Lock()
		before := len(promised)
		mu.Unlock()
		if !within(waitTimeout, func() bool { mu.Lock(); defer mu.Unlock(); return len(promised) > before+5 }) {
			t.Fatal("no further job was accepted")
		}
		if err := g.worker.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := g.worker.Start(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	submitting.Wait()
	polling.Wait()
	t.Logf("%d jobs were accepted", len(promised))
	for name := range promised {
		if s := g.ended(name); s["exit_code"] != 5.0 || runs[name] != 1 {
			t.Errorf("job %s ran %d times and was reported as %v; want once, with code 5", name, runs[name], s)
		}
	}
	for name, n := range runs {
		if n > 1 {
			t.Errorf("job %s ran %d times, want at most once", name, n)
		}
	}
}
