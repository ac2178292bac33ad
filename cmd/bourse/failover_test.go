package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// TestProxiesOrderThroughBrokers checks that a broker accepts failover orders only from
// proxies, which it identifies by their certificates.
func TestProxiesOrderThroughBrokers(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	const cluster = "proxies-order-through-brokers"
	ca.file("tokens", "a-token-that-is-not-guessed *\n")
	b := startServer(t, append([]string{"broker", "--cluster", cluster, "--name", "b-1", "--listen", "127.0.0.1:0"}, ca.flags("b-1", bourse.RoleBroker)...)...)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.ca.Pair().Cert)
	for name, c := range map[string]struct {
		role    bourse.Role
		cluster string
		status  int
	}{
		"a proxy":                    {bourse.RoleProxy, cluster, http.StatusOK},
		"a worker":                   {bourse.RoleWorker, cluster, http.StatusForbidden},
		"no certificate":             {"", cluster, http.StatusForbidden},
		"a proxy of another cluster": {bourse.RoleProxy, "other", http.StatusForbidden},
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
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+b.API+fabric.FailoverPath+"?machine=00000100000001", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Bourse-Server", c.cluster)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var reply fabric.FailoverReply
		err = json.NewDecoder(resp.Body).Decode(&reply)
		_ = resp.Body.Close()
		if resp.StatusCode != c.status || err != nil || reply.Code == "" || reply.Machine != "" {
			t.Errorf("%s: status %d, %+v, %v; want %d and a code without a machine", name, resp.StatusCode, reply, err, c.status)
		}
	}
}
