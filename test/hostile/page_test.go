package hostile

import (
	"net/http"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/machinesapi"

	"github.com/bourse-dev/bourse/internal/servertest"
)

const hostOrder = `{"region":"gru","config":{"image":"host","init":{"exec":["/bin/true"]}}}`

// listeners returns the TCP addresses of a cluster's listeners by name, which are the
// broker's API, the worker's API and the worker's gateway.
func listeners(t *testing.T) (map[string]string, *servertest.Server) {
	t.Helper()
	broker, worker := startPair(t, "--pull", "--pull-listen", "127.0.0.1:0")
	return map[string]string{"broker": broker.API, "worker": worker.API, "gateway": worker.Pull}, broker
}

// TestPagesCannotCallListeners sends requests that web pages of other sites could make a browser send. No listener may
// accept them across origins, under a host name that was made to resolve to the listener (DNS rebinding), or at
// endpoints for servers.
func TestPagesCannotCallListeners(t *testing.T) {
	all, broker := listeners(t)
	paths := []string{
		"POST /v1/apps/default/machines", "GET /v1/workers", "GET /metrics", "GET /v1/metrics/targets", "GET /v1/apps/default/machines", "POST /schedule", "POST /v1/view/queries",
		"POST /graphql", "POST /api/v1/builds", "GET /api/v1/apps/default/logs",
		"GET /worker/machine/list", "POST /worker/order/claim", "POST /worker/order/quote", "GET /worker/calls", "GET /worker/metrics",
		"POST /view/push", "POST /view/pull", "GET /view/health",
		"GET /sched/jobs", "POST /sched/submit", "POST /sched/claim/a", "GET /sched/status/a",
	}
	for name, addr := range all {
		port := addr[strings.LastIndexByte(addr, ':'):]
		for _, path := range paths {
			rebound := send(t, addr, path, []string{
				"Host: evil.example" + port, "Origin: http://evil.example" + port, "Sec-Fetch-Site: same-origin", "Content-Type: application/json",
			}, hostOrder)
			if rebound.status != http.StatusMisdirectedRequest {
				t.Errorf("%s: %s from a page with DNS rebinding: %d %s, want 421", name, path, rebound.status, rebound.body)
			}
			read := send(t, addr, path, []string{"Host: evil.example" + port, "Bourse-Server: " + broker.Of}, hostOrder)
			if read.status != http.StatusMisdirectedRequest {
				t.Errorf("%s: %s from a page with DNS rebinding, without browser headers: %d %s, want 421", name, path, read.status, read.body)
			}
			forServers := strings.Contains(path, " /worker/") || strings.Contains(path, " /view/")
			if strings.HasPrefix(path, "GET") && !forServers {
				continue // harmless: a page cannot read the reply, and the request changes nothing
			}
			for _, traces := range [][]string{
				{"Origin: http://evil.example", "Sec-Fetch-Site: cross-site"}, {"Origin: http://evil.example"}, {"Sec-Fetch-Site: cross-site"},
			} {
				form := send(t, addr, path, append([]string{"Host: " + addr, "Content-Type: text/plain"}, traces...), hostOrder)
				if form.status != http.StatusForbidden {
					t.Errorf("%s: %s from another site's form (%v): %d %s, want 403", name, path, traces, form.status, form.body)
				}
			}
			if forServers && path != "GET /worker/metrics" {
				bare := send(t, addr, path, []string{"Host: " + addr, "Content-Type: text/plain"}, hostOrder)
				if bare.status != http.StatusForbidden {
					t.Errorf("%s: %s from a caller that is not a server: %d %s, want 403", name, path, bare.status, bare.body)
				}
			}
		}
	}
	list, _, err := servertest.Client(t, broker).Machines(t.Context(), "default", machinesapi.ListMachines{})
	if err != nil || len(list) != 0 {
		t.Errorf("machines after all requests: %v (%v), want none", list, err)
	}
}

// TestServersAcceptOnlyConfiguredNames checks that a server accepts only the host names that its operator configured.
func TestServersAcceptOnlyConfiguredNames(t *testing.T) {
	broker, _ := startPairOf(t, []string{"--server-name", "api.example.com"}, nil)
	for host, want := range map[string]int{
		"api.example.com": http.StatusOK, "API.example.com:4280": http.StatusOK, "localhost": http.StatusOK, "127.0.0.1": http.StatusOK,
		"example.com": http.StatusMisdirectedRequest,
	} {
		if got := send(t, broker.API, "GET /v1/health", []string{"Host: " + host}, ""); got.status != want {
			t.Errorf("request with host %s: %d %s, want %d", host, got.status, got.body, want)
		}
	}
}
