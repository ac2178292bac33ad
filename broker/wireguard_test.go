package broker_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/network/mesh"
	"github.com/bourse-dev/bourse/view/inventory"
)

// fakeLaptops is an in-memory view of laptops, and of the workers that can be their entries.
type fakeLaptops struct {
	mu      sync.Mutex
	peers   []inventory.WireGuardPeer
	workers []inventory.MeshWorker
	runs    []bourse.WorkerID // workers that run machines of any app
}

func (v *fakeLaptops) WireGuardPeers(_ context.Context, now time.Time) ([]inventory.WireGuardPeer, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.peers), func(p inventory.WireGuardPeer) bool { return !p.RemovedAt.IsZero() || !now.Before(p.ExpiresAt) }), nil
}

func (v *fakeLaptops) StoredWireGuardPeers(_ context.Context, org string) (n int, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.peers {
		if v.peers[i].Org == org {
			n++
		}
	}
	return n, nil
}

func (v *fakeLaptops) PutWireGuardPeer(_ context.Context, p *inventory.WireGuardPeer) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.peers = append(slices.DeleteFunc(v.peers, func(old inventory.WireGuardPeer) bool { return old.ID == p.ID }), *p)
	return nil
}

func (v *fakeLaptops) MeshWorkers(context.Context) ([]inventory.MeshWorker, error) {
	return v.workers, nil
}

func (v *fakeLaptops) PrivateMachines(_ context.Context, apps []bourse.AppRef) (out []inventory.PrivateMachine, err error) {
	for _, id := range v.runs {
		out = append(out, inventory.PrivateMachine{Worker: id, App: apps[0]})
	}
	return out, nil
}

// meshWorker returns a worker with an end of the mesh. Its endpoint may be "".
func meshWorker(id bourse.WorkerID, region bourse.Region, n byte, endpoint string) inventory.MeshWorker {
	var e netip.AddrPort
	if endpoint != "" {
		e = netip.MustParseAddrPort(endpoint)
	}
	m := mesh.NewIdentity([ed25519.SeedSize]byte{n}).Announce(id, e)
	return inventory.MeshWorker{ID: id, Tag: id.Tags()[0], Region: region, Mesh: m, HostStatus: machinesapi.HostOK}
}

// admitting is like issuing, with workers that can be entries.
func admitting(t *testing.T, now *time.Time) (*setup, *fakeLaptops) {
	odd := meshWorker("odd", "mad", 6, "192.0.2.6:51820")
	odd.Tag ^= 1
	laptops := &fakeLaptops{
		workers: []inventory.MeshWorker{
			meshWorker("w1", "gru", 1, "192.0.2.1:51820"), meshWorker("w2", "gru", 2, "192.0.2.2:51820"), meshWorker("w3", "mad", 3, "192.0.2.3:51820"),
			odd, meshWorker("hidden", "mad", 4, ""), meshWorker("local", "mad", 5, "127.0.0.1:51820"),
			{ID: "alone", Region: "mad"},
		},
		runs: []bourse.WorkerID{"w1", "w2"},
	}
	s, _ := issuing(t, now, func(c *broker.Config) { c.WireGuard = laptops })
	return s, laptops
}

// publicKey returns a WireGuard key in base64.
func publicKey(n byte) string {
	return base64.StdEncoding.EncodeToString(append([]byte{9, n}, make([]byte, 30)...))
}

// admit sends a request to admit a laptop with the key n.
func (s *setup) admit(t *testing.T, by string, n byte, more string) (int, string) {
	t.Helper()
	status, reply := s.with(t, by, "POST", "/v1/wireguard_peers", fmt.Sprintf(`{"name":"laptop","public_key":%q%s}`, publicKey(n), more))
	return status, string(reply)
}

// TestWireGuardPeersAreLimitedToTheirTokens checks who may admit a laptop to which network.
func TestWireGuardPeersAreLimitedToTheirTokens(t *testing.T) {
	s, _ := admitting(t, nil)
	byName := map[string]string{"root": "root", "acme": "acme", "shop": "shop"}
	byName["made for shop"] = s.token(t, "acme", `{"apps":["shop"]}`).Token
	byName["read-only"] = s.token(t, "acme", `{"read_only":true}`).Token
	byName["none"] = "nonsense"
	key := byte(0)
	for body, want := range map[string]map[string]int{
		`,"app":"shop"`:                                  {"root": 201, "acme": 201, "shop": 201, "made for shop": 201, "read-only": 403, "none": 401},
		`,"app":"till"`:                                  {"root": 201, "acme": 201, "shop": 403, "made for shop": 403, "read-only": 403},
		`,"app":"zoo"`:                                   {"root": 201, "acme": 403, "shop": 403, "made for shop": 403},
		`,"app":"nosuchapp"`:                             {"root": 404, "acme": 404, "shop": 404},
		`,"org_slug":"acme"`:                             {"root": 201, "acme": 201, "shop": 403, "made for shop": 403},
		`,"org_slug":"zoological"`:                       {"root": 201, "acme": 403, "shop": 403},
		`,"org_slug":"acme","network":"x"`:               {"root": 404, "acme": 404, "shop": 403},
		`,"org_slug":"zoological","network":"/../acme/"`: {"root": 404, "acme": 403},
		`,"app":"shop","network":"x"`:                    {"root": 400, "acme": 400},
		``:                                               {"acme": 201, "shop": 403},
	} {
		for who, status := range want {
			key++
			if got, reply := s.admit(t, byName[who], key, body); got != status {
				t.Errorf("%s with %s: status %d, want %d: %s", body, who, got, status, reply)
			}
		}
	}
}

// TestWireGuardPeer checks the settings that a laptop receives, and who may list and remove it.
func TestWireGuardPeer(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s, laptops := admitting(t, &now)
	mine := s.token(t, "acme", `{"apps":["shop"],"expiry":"1h"}`)
	status, reply := s.admit(t, mine.Token, 1, `,"app":"shop"`)
	p := decodeBody[machinesapi.WireGuardPeer](t, []byte(reply))
	g := p.Settings
	if status != http.StatusCreated || g == nil {
		t.Fatalf("status %d: %s", status, reply)
	}
	if p.Org != "acme" || p.App != "shop" || p.Worker != "w1" || !p.ExpiresAt.Equal(now.Add(time.Hour)) || g.Endpoint.String() != "192.0.2.1:51820" || len(g.PublicKey) != 32 ||
		!bourse.IsLaptopAddress(p.Address) || !g.AllowedIPs[0].Contains(p.Address) || g.AllowedIPs[0] != bourse.NetworkPrefix("acme/") {
		t.Errorf("got %s", reply)
	}
	if status, reply := s.admit(t, "root", 1, `,"app":"zoo"`); status != http.StatusConflict {
		t.Errorf("the same key again: status %d: %s", status, reply)
	}
	key, _ := mesh.KeyOf("w2", laptops.workers[1].Mesh)
	if status, reply := s.with(t, "acme", "POST", "/v1/wireguard_peers", fmt.Sprintf(`{"name":"laptop","public_key":%q}`, key)); status != http.StatusConflict {
		t.Errorf("a worker's key: status %d: %s", status, reply)
	}
	if _, reply := s.admit(t, "acme", 2, `,"app":"till"`); !strings.Contains(reply, `"worker":"w2"`) {
		t.Errorf("the entry with fewer laptops is not used: %s", reply)
	}
	listed := func(by string) (ids []string) {
		_, reply := s.with(t, by, "GET", "/v1/wireguard_peers", "")
		for _, p := range decodeBody[machinesapi.WireGuardPeerList](t, reply).Peers {
			ids = append(ids, p.ID)
		}
		return ids
	}
	other := s.token(t, "acme", `{"apps":["shop"]}`).Token
	for by, want := range map[string]int{"root": 2, "acme": 2, "shop": 1, mine.Token: 1, other: 0} {
		if got := listed(by); len(got) != want {
			t.Errorf("%s lists %v, want %d", by, got, want)
		}
	}
	if status, reply := s.with(t, other, "DELETE", "/v1/wireguard_peers/"+p.ID, ""); status != http.StatusNotFound {
		t.Errorf("removed by another token: status %d: %s", status, reply)
	}
	if status, reply := s.with(t, "shop", "DELETE", "/v1/wireguard_peers/"+p.ID, ""); status != http.StatusOK || len(listed("root")) != 1 {
		t.Errorf("removed: status %d: %s", status, reply)
	}
	if removed := laptops.peers[len(laptops.peers)-1]; removed.ID != p.ID || !removed.RemovedAt.Equal(now) || removed.ExpiresAt.IsZero() {
		t.Errorf("the record of a removed laptop: %+v", removed)
	}
	if status, _ := s.with(t, "shop", "DELETE", "/v1/wireguard_peers/"+p.ID, ""); status != http.StatusNotFound {
		t.Errorf("removed again: status %d", status)
	}
	if status, _ := s.admit(t, mine.Token, 1, `,"app":"shop"`); status != http.StatusCreated || len(listed("root")) != 2 {
		t.Errorf("the key of a removed laptop: status %d", status)
	}
	now = now.Add(31 * 24 * time.Hour)
	if got := listed("root"); len(got) != 0 {
		t.Errorf("after expiry: %v", got)
	}
}

// TestInvalidWireGuardPeers checks that invalid requests are refused, with the reason.
func TestInvalidWireGuardPeers(t *testing.T) {
	s, laptops := admitting(t, nil)
	limited := s.token(t, "acme", `{"expiry":"1h"}`).Token
	for body, want := range map[string]string{
		`{"public_key":"` + publicKey(1) + `"}`:                        "invalid name",
		`{"name":"a"}`:                                                 "public_key",
		`{"name":"a","public_key":"AAAA"}`:                             "public_key",
		`{"name":"a","public_key":"` + strings.Repeat("A", 43) + `="}`: "public_key", // no key exchange is possible
		`{"name":"a","public_key":"KEY","ttl":"-1s"}`:                  "ttl",
		`{"name":"a","public_key":"KEY","ttl":"500ms"}`:                "invalid ttl 500ms: use 1s to 8784h",
		`{"name":"a","public_key":"KEY","ttl":"9000h"}`:                "invalid ttl 9000h",
		`{"name":"a","public_key":"KEY","ttl":"2h"}`:                   "your own token expires",
		`{"name":"a","public_key":"KEY","region":"mad"}`:               `region "mad"`,
		`{"name":"a","public_key":"KEY","worker":"nosuchworker"}`:      "not found",
		`{"name":"a","public_key":"KEY","worker":"hidden"}`:            "worker hidden has no known address",
		`{"name":"a","public_key":"KEY","worker":"local"}`:             "worker local has no known address",
		`{"name":"a","public_key":"KEY","worker":"odd"}`:               "worker odd has a tag",
		`{"name":"a","public_key":"KEY","worker":"alone"}`:             "worker alone is not connected",
		`{"name":"a","public_key":"KEY","worker":"w1","region":"mad"}`: "not found",
	} {
		status, reply := s.with(t, limited, "POST", "/v1/wireguard_peers", strings.ReplaceAll(body, "KEY", publicKey(1)))
		if status < 400 || status >= 500 || !strings.Contains(string(reply), strings.ReplaceAll(want, `"`, `\"`)) {
			t.Errorf("%s: status %d: %s, want %q", body, status, reply, want)
		}
	}
	if status, reply := s.admit(t, "acme", 1, `,"worker":"w3"`); status != http.StatusCreated {
		t.Errorf("a worker without a machine of the network: status %d: %s", status, reply)
	}
	laptops.workers[1].Mesh.Endpoint = netip.MustParseAddrPort("10.0.0.1:51820")
	laptops.workers[0].Mesh.Endpoint = netip.MustParseAddrPort("[fd00::1]:51820")
	laptops.runs = []bourse.WorkerID{"w1", "w2", "w3"}
	for key, more := range map[byte]string{3: "", 4: `,"region":"mad"`} {
		if status, reply := s.admit(t, "acme", key, more); status != http.StatusCreated || !strings.Contains(reply, `"worker":"w3"`) {
			t.Errorf("workers with private addresses are preferred: status %d: %s", status, reply)
		}
	}
	if status, reply := s.admit(t, "acme", 5, `,"region":"gru"`); status != http.StatusCreated {
		t.Errorf("only workers with private addresses: status %d: %s", status, reply)
	}
	for i := range 300 {
		laptops.peers = append(laptops.peers, inventory.WireGuardPeer{ID: fmt.Sprint(i), Org: "acme", PublicKey: [32]byte{7, byte(i), byte(i >> 8)}, ExpiresAt: time.Now().Add(time.Hour)})
	}
	if status, reply := s.admit(t, "acme", 2, ""); status != http.StatusForbidden || !strings.Contains(reply, "256") {
		t.Errorf("too many: status %d: %s", status, reply)
	}
	laptops.peers = slices.Repeat([]inventory.WireGuardPeer{{Org: "acme", RemovedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}}, 10_000)
	if status, reply := s.admit(t, "acme", 2, ""); status != http.StatusForbidden || !strings.Contains(reply, "10000") {
		t.Errorf("too many removed ones: status %d: %s", status, reply)
	}
	if status, reply := s.admit(t, "root", 3, `,"app":"zoo"`); status != http.StatusCreated {
		t.Errorf("another organization: status %d: %s", status, reply)
	}
}
