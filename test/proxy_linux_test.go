package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestProxyCutOffFromAWorker disconnects a proxy from the host of one of two workers. Brokers and the other worker can
// still reach both. The other worker's machine must answer the requests through the proxy. Once the network is
// repaired, both machines must answer.
func TestProxyCutOffFromAWorker(t *testing.T) {
	t.Parallel()
	hello := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", hello, "github.com/bourse-dev/bourse/examples/hello").CombinedOutput(); err != nil {
		t.Fatalf("build the machine's program: %v\n%s", err, out)
	}
	l := newLAN(t)
	hosts := []*host{l.host(1), l.host(2), l.host(4), l.host(8)}
	place := func(s *server, h *host, more ...string) *server {
		s.Launch, s.Dial = h.launch, h.dial
		s.Args = append(s.Args, "--insecure", "--listen", h.addr.String()+":4280", "--gossip", h.addr.String()+":7946")
		s.Args = append(s.Args, more...)
		return s
	}
	join := []string{"--join", hosts[0].addr.String() + ":7946"}
	broker := place(newServer(t, "b1", "serve", "broker"), hosts[0])
	startAll(t, broker)
	var workers []*server
	for i, name := range []string{"w1", "w2"} {
		w, _ := newWorker(t, name, "gru", "--allow-host")
		workers = append(workers, place(w, hosts[1+i], join...))
	}
	at := hosts[3].addr.String() + ":8080"
	proxy := place(newServer(t, "p1", "serve", "proxy", "--region", "gru", "--http", at+"=any"), hosts[3], append(join, "--log-level", "debug")...)
	startAll(t, append(workers, proxy)...)
	api := client(t, broker)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 4, api) })
	of := map[string]bourse.MachineID{}
	for _, w := range workers {
		m := create(t, api, on(w.Name, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 64}, Init: bourse.Init{Exec: []string{hello}},
			StoredConfig: bourse.StoredConfig{Services: json.RawMessage(`[{"protocol":"tcp","ports":[{"port":80,"handlers":["http"]}]}]`)},
		}}))
		of[w.Name] = m.ID
	}
	transport := &http.Transport{DialContext: hosts[3].dial}
	defer transport.CloseIdleConnections()
	asks := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	ask := func() (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/", nil)
		if err != nil {
			return "", err
		}
		req.Host = string(app) + ".localhost"
		resp, err := asks.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s, want 200: %s", resp.Status, text)
		}
		return string(text), err
	}
	both := func(what string) {
		t.Helper()
		seen := map[string]bool{}
		eventually(t, waitTimeout, what, func() error {
			text, err := ask()
			for name, id := range of {
				if err == nil && strings.Contains(text, string(id)) {
					seen[name] = true
				}
			}
			if err == nil && len(seen) < 2 {
				err = fmt.Errorf("only machines on %v answered, want machines on both workers", seen)
			}
			return err
		})
	}
	both("both machines answer")
	l.set(func(from, to *host, _ []byte) bool {
		return from.side+to.side != hosts[1].side+hosts[3].side
	})
	begin, slowest := time.Now(), time.Duration(0)
	for range 50 {
		asked := time.Now()
		text, err := ask()
		slowest = max(slowest, time.Since(asked))
		if err != nil || !strings.Contains(text, string(of["w2"])) {
			t.Fatalf("request %v after the cut, sent %v before: %q, %v; want a reply of machine %s", time.Since(begin), time.Since(asked), text, err, of["w2"])
		}
	}
	t.Logf("50 requests after the cut took %v, the slowest %v", time.Since(begin).Round(time.Millisecond), slowest.Round(time.Millisecond))
	l.heal()
	both("both machines answer again")
}
