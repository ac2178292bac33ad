package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestProxiesAskTheSameBroker: whatever order proxies know brokers in, and wherever they
// are, they ask the same one of the machine's region; for other apps, another.
func TestProxiesAskTheSameBroker(t *testing.T) {
	t.Parallel()
	first := map[bourse.WorkerID]int{}
	for app := range 100 {
		var want bourse.WorkerID
		for range 5 {
			brokers := []bourse.Member{
				{ID: "b1", Region: "gru"}, {ID: "b2", Region: "gru"}, {ID: "b3", Region: "gru"}, {ID: "b4", Region: "mad"},
			}
			rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
			sortFor(brokers, strconv.Itoa(app), "gru")
			if got := brokers[0].ID; want != "" && got != want || brokers[3].ID != "b4" {
				t.Fatalf("app %d: %v, want %s first and b4 last", app, brokers, want)
			}
			want = brokers[0].ID
		}
		first[want]++
	}
	if len(first) != 3 || slices.Max(slices.Collect(maps.Values(first))) > 60 {
		t.Errorf("brokers are asked first for so many apps: %v", first)
	}
}

// TestProxiesOrderThroughBrokers: a broker listens to proxies, by their certificates,
// and to no one else, when one asks for a machine as another is.
func TestProxiesOrderThroughBrokers(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	const cluster = "proxies-order-through-brokers"
	b := startServer(t, append([]string{
		"broker", "--cluster", cluster, "--name", "b-1", "--listen", "127.0.0.1:0", "--token-file", ca.file("tokens", "a-token-that-is-not-guessed *\n"),
	}, ca.flags("b-1", bourse.RoleBroker)...)...)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.ca.Pair().Cert)
	for name, c := range map[string]struct {
		role    bourse.Role
		cluster string
		status  int
	}{
		"a proxy":            {bourse.RoleProxy, cluster, http.StatusOK},
		"a worker":           {bourse.RoleWorker, cluster, http.StatusForbidden},
		"no one":             {"", cluster, http.StatusForbidden},
		"of another cluster": {bourse.RoleProxy, "other", http.StatusForbidden},
	} {
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
		if c.role != "" {
			pair := ca.issue("x-1", c.role)
			cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{cert}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+b.API+pathElsewhere+"?machine=00000100000001", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Bourse-Server", c.cluster)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var reply elsewhereReply
		err = json.NewDecoder(resp.Body).Decode(&reply)
		_ = resp.Body.Close()
		if resp.StatusCode != c.status || err != nil || reply.Code == "" || reply.Machine != "" {
			t.Errorf("%s: status %d, %+v, %v; want %d and why nothing was ordered", name, resp.StatusCode, reply, err, c.status)
		}
	}
}
