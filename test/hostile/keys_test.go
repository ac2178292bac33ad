package hostile

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/enroll"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestAccessToKeys checks which servers may receive and replace keys. A broker sends the keys of an app's secrets only
// to a worker on which it has placed a machine of the app. Only brokers may replace the keys that servers share.
func TestAccessToKeys(t *testing.T) {
	s := newSecured(t)
	s.put("secrets.key", seal.Generate())
	broker := s.broker()
	worker := s.worker("--join", broker.Addr)
	api := s.client(broker)
	s.execOnW1(api)
	list, _, err := api.Machines(t.Context(), "default", machinesapi.ListMachines{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d machines, %v; want one", len(list), err)
	}
	if !servertest.Within(servertest.Timeout, func() bool {
		found := 0
		for line, err := range api.Query(t.Context(), machinesapi.ViewQuery{Statement: "SELECT id FROM machines"}) {
			if err == nil && line.Row != nil {
				found++
			}
		}
		return found == 1
	}) {
		t.Fatal("the machine is not in the broker's view")
	}
	one, two := s.credentials("w1"), s.credentials("w2")
	pair, err := s.ca.Issue(admission.Identity{ID: "p1", Role: bourse.RoleProxy}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := admission.NewCredentials(s.ca.Pair().Cert, pair)
	if err != nil {
		t.Fatal(err)
	}
	appKeys := enroll.AppKeysRequest{Machine: list[0].ID}
	keys := enroll.KeyRequest{Key: machinesapi.KeyGossip, Text: admission.NewGossipKey()}
	rotate := enroll.RotateRequest{Key: machinesapi.KeySecrets, Rotate: machinesapi.Rotate{Start: true}}
	ca := enroll.KeyRequest{Key: machinesapi.KeyCA, Text: s.ca.Pair().Cert}
	const toBroker, toWorker = "b1.broker.bourse.internal", "w1.worker.bourse.internal"
	for _, c := range []struct {
		what, to, path string
		by             *admission.Credentials // nil means a client without a certificate, but with an operator's token
		body           any
		want           int
	}{
		{"the worker of the machine", toBroker, enroll.PathAppKeys, one, appKeys, http.StatusOK},
		{"another worker", toBroker, enroll.PathAppKeys, two, appKeys, http.StatusForbidden},
		{"a machine that does not exist", toBroker, enroll.PathAppKeys, one, enroll.AppKeysRequest{Machine: "0000000000000000"}, http.StatusServiceUnavailable},
		{"a proxy", toBroker, enroll.PathAppKeys, proxy, appKeys, http.StatusForbidden},
		{"a client", toBroker, enroll.PathAppKeys, nil, appKeys, http.StatusForbidden},
		{"a worker replaces a broker's keys", toBroker, enroll.PathKeys, two, keys, http.StatusForbidden},
		{"a worker replaces a worker's keys", toWorker, enroll.PathKeys, two, keys, http.StatusForbidden},
		{"a proxy replaces a worker's keys", toWorker, enroll.PathKeys, proxy, keys, http.StatusForbidden},
		{"a client replaces a broker's keys", toBroker, enroll.PathKeys, nil, keys, http.StatusForbidden},
		{"a worker replaces a worker's CA", toWorker, enroll.PathKeys, two, ca, http.StatusForbidden},
		{"a proxy replaces a broker's CA", toBroker, enroll.PathKeys, proxy, ca, http.StatusForbidden},
		{"a worker rotates keys", toBroker, enroll.PathRotate, two, rotate, http.StatusForbidden},
		{"a client rotates keys without the API", toBroker, enroll.PathRotate, nil, rotate, http.StatusForbidden},
	} {
		at := broker.API
		if c.to == toWorker {
			at = worker.API
		}
		body, err := json.Marshal(c.body)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+at+c.path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if c.by == nil {
			req.Header.Set("Authorization", "Bearer "+clusterToken)
		} else {
			admission.Proof{Cluster: worker.Of}.Show(req.Header)
		}
		resp, err := s.as(c.to, c.by).Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		var reply enroll.AppKeysReply
		err = json.NewDecoder(resp.Body).Decode(&reply)
		resp.Body.Close()
		if resp.StatusCode != c.want || (c.want == http.StatusOK) != (err == nil && len(reply.Keys) == bourse.AppKeySize) {
			t.Errorf("%s: %s with %d bytes of keys, %v; want %d", c.what, resp.Status, len(reply.Keys), err, c.want)
		}
	}
}
