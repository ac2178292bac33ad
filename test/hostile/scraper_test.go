package hostile

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/view/gossip"
)

// scraper requests metrics from a server in the same way as Prometheus.
type scraper struct {
	t       *testing.T
	http    *http.Client
	token   string
	cluster string // id of the cluster that the requests name; "" means none
}

func (s *scraper) ask(method, url string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	if s.cluster != "" {
		admission.Proof{Cluster: s.cluster}.Show(req.Header)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestScraperCanReadOnlyMetrics reads the metrics of brokers and workers as a scraper, with its token or its
// certificate, directly or through a broker. No server may permit the scraper anything else.
func TestScraperCanReadOnlyMetrics(t *testing.T) {
	s := newSecured(t)
	const token = "a-token-of-prometheus"
	s.put("tokens", []byte(clusterToken+" *\n"+token+" role:scraper\n"))
	b := s.broker()
	w := s.worker("--join", b.Addr)
	creds, err := admission.Load(s.issue("prom", bourse.RoleScraper))
	if err != nil {
		t.Fatal(err)
	}
	pool := creds.Client().RootCAs
	byToken := scraper{t, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}}, token, ""}
	byCert := scraper{t, &http.Client{Transport: &http.Transport{TLSClientConfig: creds.Client()}}, "", ""}
	toWorker := scraper{t, s.as("w1.worker.bourse.internal", creds), "", ""}
	broker, worker := "https://"+b.API, "https://"+w.API
	if !servertest.Within(servertest.Timeout, func() bool {
		status, _ := byToken.ask("GET", broker+"/v1/workers/w1/metrics")
		return status == http.StatusOK
	}) {
		t.Fatal("the broker does not relay its worker's metrics")
	}
	for _, from := range []struct {
		by   scraper
		url  string
		want []string
	}{
		{byToken, broker + "/metrics", []string{"bourse_orders_in_progress 0", `bourse_members{role="worker",state="ok"} 1`, "bourse_certificate_expiry_timestamp_seconds "}},
		{byCert, broker + "/metrics", []string{"bourse_orders_in_progress 0"}},
		{byToken, broker + "/v1/metrics/targets", []string{`"__metrics_path__":"/v1/workers/w1/metrics"`}},
		{byCert, broker + "/v1/workers/w1/metrics", []string{"bourse_worker_machines{", "bourse_certificate_expiry_timestamp_seconds "}},
		{toWorker, worker + "/worker/metrics", []string{"bourse_worker_machines{", `role="worker"`}},
	} {
		status, text := from.by.ask("GET", from.url)
		for _, want := range from.want {
			if status != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("%s: %d, want 200 and %s:\n%s", from.url, status, want, text)
			}
		}
	}
	byToken.cluster, byCert.cluster, toWorker.cluster = b.Of, b.Of, b.Of // name the cluster, like a server would
	refused := []string{
		"GET /v1/apps", "POST /v1/apps", "GET /v1/apps/default", "GET /v1/apps/default/machines", "POST /v1/apps/default/machines", "POST /schedule",
		"GET /v1/workers", "GET /v1/workers/w1", "GET /v1/workers/w1/runs", "GET /v1/images", "POST /v1/images/prune",
		"POST /v1/view/queries", "GET /v1/view/health", "GET /v1/orders/" + string(bourse.NewOrderID()),
		"GET /api/v1/organizations", "GET /api/v1/apps/default/logs",
		"GET /view/health", "POST /view/push", "GET " + gossip.PathSelf, "GET " + gossip.PathMembers,
	}
	for _, call := range refused {
		method, path, _ := strings.Cut(call, " ")
		for name, by := range map[string]scraper{"token": byToken, "certificate": byCert} {
			if status, text := by.ask(method, broker+path); status != http.StatusForbidden {
				t.Errorf("%s by %s at the broker: %d, want 403: %s", call, name, status, text)
			}
		}
	}
	for _, v := range fabric.Verbs() {
		refused = append(refused, v.Method+" "+v.Path())
	}
	for _, call := range append(refused, "GET /worker/calls", "GET /") {
		method, path, _ := strings.Cut(call, " ")
		if path == "/worker/metrics" {
			continue
		}
		if status, text := toWorker.ask(method, worker+path); status != http.StatusForbidden {
			t.Errorf("%s at the worker: %d, want 403: %s", call, status, text)
		}
	}
	strangers := scraper{t, s.as("w1.worker.bourse.internal", nil), token, ""}
	if status, text := strangers.ask("GET", worker+"/worker/metrics"); status != 0 {
		t.Errorf("request for a worker's metrics without a certificate: %d %s, want no connection", status, text)
	}
	// A scraper is not a server, so servers must reject what it signs.
	der, _ := creds.Own()
	if _, _, _, err := creds.Author(der, time.Now()); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("author of data that a scraper has signed: %v, want forbidden", err)
	}
}
