package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestGatewayRequiresTokens checks that the gateway requires tokens, and that its worker
// stops cleanly while a host waits for work.
func TestGatewayRequiresTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("good-for-everything *\ngood-for-acme-only acme\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := startServer(t, workerArgs("gate", dataDir(t), "--pull", "--pull-listen", "127.0.0.1:0", "--pull-token-file", file)...)
	ask := func(path, token string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.Pull+"/sched/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	for token, want := range map[string]int{"": 401, "wrong-and-long-enough": 401, "good-for-acme-only": 403, "good-for-everything": 204} {
		if got, err := ask("jobs?wait=0s", token); got != want {
			t.Errorf("token %q: status %d (%v), want %d", token, got, err, want)
		}
	}
	waited := make(chan int, 1)
	go func() {
		status, _ := ask("jobs?wait=1m", "good-for-everything") // the status is 0 if the worker had already stopped
		waited <- status
	}()
	w.end(t, syscall.SIGTERM)
	if status := <-waited; status != 204 && status != 0 {
		t.Errorf("the waiting request was answered with %d, want 204", status)
	}
}

func TestGatewayAddressTaken(t *testing.T) {
	t.Parallel()
	first := startServer(t, workerArgs("one", dataDir(t), "--pull", "--pull-listen", "127.0.0.1:0")...)
	launch(t, workerArgs("two", dataDir(t), "--pull", "--pull-listen", first.Pull)...).refused(t, 5, "the gateway")
	missing := filepath.Join(t.TempDir(), "none")
	launch(t, workerArgs("three", dataDir(t), "--pull", "--pull-listen", "127.0.0.1:0", "--pull-token-file", missing)...).refused(t, 2, "tokens")
	if strings.Contains(first.API, first.Pull) {
		t.Error("the gateway and the API have the same address")
	}
}
