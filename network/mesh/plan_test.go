package mesh

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// identity returns the identity with the given number.
func identity(n byte) Identity { return NewIdentity([ed25519.SeedSize]byte{n}) }

// member returns a worker in the mesh. Its tag is the first of its ID's tags.
func member(id bourse.WorkerID, n byte) Worker {
	return Worker{ID: id, Tag: id.Tags()[0], Mesh: identity(n).Announce(id, netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:51820", n)))}
}

func machineOf(w Worker, n int, network string) Machine {
	return Machine{ID: bourse.MachineID(w.Tag.String() + fmt.Sprintf("%08x", n)), Worker: w.ID, Network: network}
}

func TestPlan(t *testing.T) {
	self, other, third := member("self", 1), member("other", 2), member("third", 3)
	workers := []Worker{third, self, other}
	machines := []Machine{
		machineOf(self, 1, "acme/"), machineOf(other, 2, "acme/"), machineOf(other, 1, "acme/"), machineOf(other, 3, "evil/"), machineOf(third, 1, "evil/"),
	}
	got := Plan(time.Now(), self, []string{"acme/"}, workers, machines, nil)
	if len(got) != 1 {
		t.Fatalf("got %d peers, want one: %+v", len(got), got)
	}
	p := got[0]
	remote := func(m Machine) network.Remote {
		return network.Remote{Network: m.Network, Address: bourse.PrivateAddress(m.Network, m.ID)}
	}
	want := []network.Remote{remote(machines[2]), remote(machines[1])}
	if p.Worker != "other" || p.Key != identity(2).private().PublicKey() || p.Endpoint != other.Mesh.Endpoint || p.Address != Address(other.Tag) || !slices.Equal(p.Machines, want) {
		t.Errorf("got %+v, want %v", p, want)
	}
	if got := Plan(time.Now(), self, nil, workers, machines, nil); len(got) != 0 {
		t.Errorf("without machines: got %+v, want no peers", got)
	}
}

// TestLiars checks that a worker does not gain anything by announcing data that belongs to another worker.
func TestLiars(t *testing.T) {
	self, honest := member("self", 1), member("honest", 2)
	liar := member("liar", 3)
	plan := func(change func(w *Worker), claimed ...Machine) []Peer {
		w, m := liar, *liar.Mesh
		w.Mesh = &m
		change(&w)
		return Plan(time.Now(), self, []string{"acme/"}, []Worker{self, honest, w}, append([]Machine{machineOf(honest, 1, "acme/"), machineOf(liar, 1, "acme/")}, claimed...), nil)
	}
	usual := plan(func(*Worker) {})
	if len(usual) != 2 {
		t.Fatalf("without a lie: got %+v, want two peers", usual)
	}
	stolen := machineOf(honest, 1, "acme/")
	stolen.Worker = liar.ID
	ours := machineOf(self, 7, "acme/")
	ours.Worker = liar.ID
	odd := Machine{ID: "../../../etc/x", Worker: liar.ID, Network: "acme/"}
	if got := plan(func(*Worker) {}, stolen, ours, odd); fmt.Sprint(got) != fmt.Sprint(usual) {
		t.Errorf("with other workers' machines: got %+v, want %+v", got, usual)
	}
	for name, change := range map[string]func(*Worker){
		"another's key":             func(w *Worker) { w.Mesh.Key = honest.Mesh.Key },
		"another's key and proof":   func(w *Worker) { w.Mesh.Key, w.Mesh.Proof = honest.Mesh.Key, honest.Mesh.Proof },
		"our key and proof":         func(w *Worker) { w.Mesh.Key, w.Mesh.Proof = self.Mesh.Key, self.Mesh.Proof },
		"another's tag":             func(w *Worker) { w.Tag = honest.Tag },
		"our tag":                   func(w *Worker) { w.Tag = self.Tag },
		"a tag that nobody uses":    func(w *Worker) { w.Tag = honest.ID.Tags()[1] },
		"no key":                    func(w *Worker) { w.Mesh.Key = nil },
		"a key without order":       func(w *Worker) { w.Mesh.Key = make([]byte, 32) },
		"nothing":                   func(w *Worker) { w.Mesh = nil },
		"the key of our own worker": func(w *Worker) { w.Mesh = identity(1).Announce(w.ID, netip.AddrPort{}) },
	} {
		if got := plan(change, stolen); len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(usual[0]) {
			t.Errorf("%s: got %+v, want %+v", name, got, usual[:1])
		}
	}
}

// laptopOf returns a laptop with the key that has the given number.
func laptopOf(entry Worker, n byte, network string) Laptop {
	return Laptop{
		ID: fmt.Sprint("l", n), Network: network, Key: identity(n).private().PublicKey(), Entry: entry.ID,
		CreatedAt: start.Add(time.Duration(n) * time.Second), ExpiresAt: start.Add(time.Hour),
	}
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestPlanLaptops checks that a laptop is a peer of its entry, and that other workers with machines in its network
// reach it through its entry.
func TestPlanLaptops(t *testing.T) {
	entry, other, third := member("entry", 1), member("other", 2), member("third", 3)
	workers := []Worker{entry, other, third}
	machines := []Machine{machineOf(other, 1, "acme/"), machineOf(third, 1, "evil/")}
	l := laptopOf(entry, 9, "acme/")
	address := bourse.LaptopAddress("acme/", l.Key)
	behind := network.Remote{Network: "acme/", Address: bourse.PrivateAddress("acme/", machines[0].ID)}
	laptop := network.Remote{Network: "acme/", Address: address, Here: true}
	there := network.Remote{Network: "acme/", Address: address}
	plan := func(now time.Time, self Worker, networks ...string) map[bourse.WorkerID][]network.Remote {
		out := map[bourse.WorkerID][]network.Remote{}
		for _, p := range Plan(now, self, networks, workers, machines, []Laptop{l}) {
			out[p.Worker] = p.remotes()
		}
		return out
	}
	for name, c := range map[string]struct {
		got, want map[bourse.WorkerID][]network.Remote
	}{
		"the entry has no machine":     {plan(start, entry), map[bourse.WorkerID][]network.Remote{"other": {behind}, "": {laptop}}},
		"the entry in another network": {plan(start, entry, "evil/"), map[bourse.WorkerID][]network.Remote{"other": {behind}, "third": {{Network: "evil/", Address: bourse.PrivateAddress("evil/", machines[1].ID)}}, "": {laptop}}},
		"the machine's worker":         {plan(start, other, "acme/"), map[bourse.WorkerID][]network.Remote{"entry": {there}}},
		"a worker in another network":  {plan(start, third, "evil/"), nil},
		"the entry, after expiry":      {plan(l.ExpiresAt, entry), nil},
		"the worker, after expiry":     {plan(l.ExpiresAt, other, "acme/"), nil},
	} {
		if fmt.Sprint(c.got) != fmt.Sprint(c.want) && len(c.got)+len(c.want) > 0 {
			t.Errorf("%s: got %v, want %v", name, c.got, c.want)
		}
	}
}

// TestLaptopsWithOthersKeys checks that nobody can disconnect a worker or a laptop by registering its public key.
func TestLaptopsWithOthersKeys(t *testing.T) {
	self, other := member("self", 1), member("other", 2)
	machines := []Machine{machineOf(other, 1, "acme/")}
	honest := laptopOf(self, 9, "acme/")
	same := laptopOf(self, 9, "evil/")
	same.ID, same.CreatedAt = "a", honest.CreatedAt.Add(time.Second)
	plan := func(laptops ...Laptop) string {
		return fmt.Sprint(Plan(start, self, []string{"acme/"}, []Worker{self, other}, machines, laptops))
	}
	usual := plan(honest)
	for name, got := range map[string]string{
		"a worker's key":                      plan(laptopOf(self, 2, "evil/"), honest),
		"our own key":                         plan(laptopOf(self, 1, "evil/"), honest),
		"a laptop's key in another network":   plan(same, honest),
		"a laptop's key, in another order":    plan(honest, same),
		"a laptop's key, with another worker": plan(honest, func() Laptop { l := same; l.Entry = other.ID; return l }()),
	} {
		if got != usual {
			t.Errorf("%s: got %s, want %s", name, got, usual)
		}
	}
	for n, name := range map[byte]string{1: "our own key", 2: "a worker's key"} {
		if got := Plan(start, self, nil, []Worker{self, other}, machines, []Laptop{laptopOf(self, n, "acme/")}); len(got) != 0 {
			t.Errorf("%s, without machines: got %+v, want no peers", name, got)
		}
	}
	if a, b := bourse.LaptopAddress("acme/", honest.Key), bourse.LaptopAddress("evil/", honest.Key); a == b || !bourse.IsLaptopAddress(a) || bourse.IsLaptopAddress(Address(self.Tag)) {
		t.Errorf("a laptop's addresses in two networks are %s and %s; they must differ and be laptop addresses", a, b)
	}
}

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:51820": "192.0.2.1:51820", "10.0.0.1:1": "10.0.0.1:1", "[2001:db8::1]:5": "[2001:db8::1]:5", "[::ffff:10.0.0.1]:1": "10.0.0.1:1",
		"127.0.0.1:1": "", "[::1]:1": "", "[::ffff:127.0.0.1]:1": "", "0.0.0.0:1": "", "[::]:1": "", "224.0.0.1:1": "", "[ff02::1]:1": "", "255.255.255.255:1": "",
		"169.254.169.254:80": "", "[fe80::1%eth0]:1": "", "[fdaa::3]:53": "", "[fdaa:1:2::2]:1": "", "198.18.0.5:1": "", "192.0.2.1:0": "", "[2001:db8::1%x]:5": "",
	} {
		got := Usable(netip.MustParseAddrPort(text))
		if want == "" && got.IsValid() || want != "" && got.String() != want {
			t.Errorf("%s: got %s, want %q", text, got, want)
		}
	}
	if Usable(netip.AddrPort{}).IsValid() {
		t.Error("the zero endpoint is usable")
	}
}

// TestPlanProperties checks plans for arbitrary workers and machines: no two peers have an address or key in common,
// and each address belongs to a machine that its peer runs in a shared network. A worker that has no networks has peers
// only if one of them is a laptop.
func TestPlanProperties(t *testing.T) {
	names := []bourse.WorkerID{"self", "a", "b", "c"}
	networks := []string{"acme/", "acme/x", "evil/"}
	rapid.Check(t, func(t *rapid.T) {
		tag := func(label string) bourse.WorkerTag {
			return rapid.SampledFrom(names).Draw(t, label).Tags()[rapid.IntRange(0, 1).Draw(t, label+" rank")]
		}
		var workers []Worker
		for _, id := range names[1:] {
			signed := rapid.SampledFrom(names).Draw(t, "signer")
			workers = append(workers, Worker{ID: id, Tag: tag("tag"), Mesh: identity(byte(rapid.IntRange(0, 3).Draw(t, "key"))).Announce(signed, netip.AddrPort{})})
		}
		var machines []Machine
		for range rapid.IntRange(0, 12).Draw(t, "machines") {
			machines = append(machines, Machine{
				ID:     bourse.MachineID(tag("machine").String() + fmt.Sprintf("%08x", rapid.IntRange(0, 2).Draw(t, "number"))),
				Worker: rapid.SampledFrom(names).Draw(t, "worker"), Network: rapid.SampledFrom(networks).Draw(t, "network"),
			})
		}
		self := member("self", 0)
		shared := networks[:rapid.IntRange(0, 2).Draw(t, "shared")]
		var laptops []Laptop
		for range rapid.IntRange(0, 6).Draw(t, "laptops") {
			l := laptopOf(Worker{ID: rapid.SampledFrom(names).Draw(t, "entry")}, byte(rapid.IntRange(0, 9).Draw(t, "laptop key")), rapid.SampledFrom(networks).Draw(t, "laptop network"))
			l.ExpiresAt = start.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "expiry")) * time.Hour)
			laptops = append(laptops, l)
		}
		isValid := func(r network.Remote, entry bourse.WorkerID) bool {
			return slices.ContainsFunc(laptops, func(l Laptop) bool {
				return l.Entry == entry && l.Network == r.Network && bourse.LaptopAddress(l.Network, l.Key) == r.Address && l.ExpiresAt.After(start)
			})
		}
		peers := Plan(start, self, shared, workers, machines, laptops)
		if len(shared) == 0 && len(peers) > 0 && !slices.ContainsFunc(peers, isLaptopPeer) {
			t.Fatalf("a worker without networks has peers: %+v", peers)
		}
		for _, l := range laptops {
			if l.Entry == self.ID && l.ExpiresAt.After(start) {
				shared = append(slices.Clone(shared), l.Network)
			}
		}
		addresses, keys := map[netip.Addr]bool{Address(self.Tag): true}, map[wgtypes.Key]bool{identity(0).private().PublicKey(): true}
		for _, p := range peers {
			if keys[p.Key] || addresses[p.Address] {
				t.Fatalf("peer %s has another peer's key or address", p.Worker)
			}
			keys[p.Key], addresses[p.Address] = true, true
			if p.Worker == "" {
				if r := p.remotes()[0]; !isValid(r, self.ID) || !r.Here {
					t.Fatalf("%+v is not a laptop whose entry is this worker", p)
				}
				continue
			}
			if len(p.Machines) == 0 {
				t.Fatalf("peer %s has no machines", p.Worker)
			}
			for _, r := range p.Machines {
				if addresses[r.Address] {
					t.Fatalf("%s is the address of two machines", r.Address)
				}
				addresses[r.Address] = true
				if bourse.IsLaptopAddress(r.Address) {
					if !isValid(r, p.Worker) || r.Here || !slices.Contains(shared, r.Network) {
						t.Fatalf("%+v is not a laptop whose entry is %s", r, p.Worker)
					}
					continue
				}
				of := slices.IndexFunc(machines, func(m Machine) bool {
					return m.Worker == p.Worker && m.Network == r.Network && bourse.PrivateAddress(m.Network, m.ID) == r.Address && p.Worker.TagRank(m.ID.Tag()) < bourse.TagChoices && m.ID.Tag() != self.Tag
				})
				if of < 0 || !slices.Contains(shared, r.Network) {
					t.Fatalf("%s in %s is not a machine on %s", r.Address, r.Network, p.Worker)
				}
			}
		}
	})
}

func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mesh.key")
	first, err := LoadIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := LoadIdentity(path)
	if err != nil || first.private() != again.private() {
		t.Errorf("the second LoadIdentity returns a different identity: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key file has mode %v, %v; want 0600", info.Mode(), err)
	}
	key, ok := KeyOf("w1", first.Announce("w1", netip.AddrPort{}))
	if !ok || key != first.private().PublicKey() {
		t.Errorf("KeyOf: got %s, %t; want %s", key, ok, first.private().PublicKey())
	}
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadIdentity(path); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("LoadIdentity of a damaged file: %v, want invalid", err)
	}
}

// FuzzAnnouncement decodes data that a worker may publish.
func FuzzAnnouncement(f *testing.F) {
	good, err := json.Marshal(identity(1).Announce("w1", netip.MustParseAddrPort("192.0.2.1:1")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"key":"","proof":null,"endpoint":"[fe80::1%x]:1"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var m bourse.Mesh
		if json.Unmarshal(text, &m) != nil {
			return
		}
		if e := Usable(m.Endpoint); e.IsValid() && (e.Addr().IsLoopback() || e.Addr().Zone() != "") {
			t.Errorf("endpoint %s is usable", e)
		}
		if _, ok := KeyOf("w2", &m); ok {
			t.Errorf("%s is accepted as another worker's key", text)
		}
	})
}

func TestMTU(t *testing.T) {
	for outside, want := range map[int]int{1500: 1420, 1420: 1340, 1280: 1280, 1300: 1280} {
		if got := MTU(outside); got != want {
			t.Errorf("MTU(%d): got %d, want %d", outside, got, want)
		}
	}
}
