package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// fakeEnd is an end of the mesh that records calls to Apply.
type fakeEnd struct {
	err     error
	applied []string
}

func (e *fakeEnd) Apply(_ context.Context, _ bourse.WorkerTag, peers []Peer, keep bool) error {
	e.applied = append(e.applied, fmt.Sprint(len(peers), keep))
	return e.err
}

func (e *fakeEnd) Status(peers []Peer) ([]bourse.MeshPeer, error) {
	var out []bourse.MeshPeer
	for _, p := range peers {
		if !isLaptopPeer(p) {
			out = append(out, bourse.MeshPeer{Worker: p.Worker, Machines: len(p.Machines), Received: 1})
		}
	}
	return out, nil
}

func (*fakeEnd) Exists() bool           { return true }
func (*fakeEnd) Ended() <-chan struct{} { return nil }

type fakeNetworks struct {
	names     []string
	recovered bool
	admitted  int // number of calls to AdmitPeers
}

func (n *fakeNetworks) Networks() ([]string, bool)                             { return n.names, n.recovered }
func (*fakeNetworks) Changed() <-chan struct{}                                 { return nil }
func (n *fakeNetworks) AdmitPeers(context.Context) error                       { n.admitted++; return nil }
func (*fakeNetworks) SetRemotes(context.Context, []network.Remote, bool) error { return nil }

type stepView struct {
	workers  []Worker
	machines []Machine
	laptops  []Laptop
	whole    bool
	err      error
}

func (v *stepView) Members(context.Context, bourse.WorkerID, []string) (Members, error) {
	return Members{Workers: v.workers, Machines: v.machines, Laptops: v.laptops}, v.err
}
func (v *stepView) Whole() bool            { return v.whole }
func (*stepView) Changed() <-chan struct{} { return nil }

// TestStep checks that a step does not change anything before the networks are recovered, keeps workers while the view
// is incomplete, reports a peer as disconnected after an error, and removes all peers if there are no machines.
func TestStep(t *testing.T) {
	self, other := member("self", 1), member("other", 2)
	device, networks := &fakeEnd{}, &fakeNetworks{}
	view := &stepView{[]Worker{self, other}, []Machine{machineOf(self, 1, "acme/"), machineOf(other, 1, "acme/")}, nil, true, nil}
	m := &Mesh{self: self.ID, announce: self.Mesh, device: device, networks: networks, view: view, log: slog.New(slog.DiscardHandler)}
	var plan plan
	check := func(when string, changed bool, failure error, applied string, peers ...bourse.MeshPeer) {
		t.Helper()
		device.err, device.applied, networks.admitted = failure, nil, 0
		if err := m.step(t.Context(), self, changed, &plan); !errors.Is(err, failure) {
			t.Errorf("%s: %v", when, err)
		}
		want := []string{applied}
		if applied == "" {
			want = nil
		}
		if fmt.Sprint(device.applied) != fmt.Sprint(want) || fmt.Sprint(m.Peers()) != fmt.Sprint(peers) {
			t.Errorf("%s: applied %v, want %v; peers %+v, want %+v", when, device.applied, want, m.Peers(), peers)
		}
		if with := applied != "" && applied[0] != '0'; with != (networks.admitted > 0) {
			t.Errorf("%s: AdmitPeers was called: %t, want the opposite", when, !with)
		}
	}
	up := bourse.MeshPeer{Worker: "other", Machines: 1, Received: 1}
	check("before the networks are recovered", true, nil, "")
	networks.names, networks.recovered, view.whole = []string{"acme/"}, true, false
	check("with an incomplete view", true, nil, "1 true", up)
	view.whole = true
	check("with the whole view", false, nil, "1 false", up)
	check("after an error", false, errors.New("no link"), "1 false", bourse.MeshPeer{Worker: "other", Machines: 1})
	check("repaired", false, nil, "1 false", up)
	networks.names = nil
	check("without machines", true, nil, "0 false")
	view.whole = false
	check("without machines, with an incomplete view", true, nil, "") // the link must stay down, because there are no rules
	view.machines, view.laptops, view.whole = nil, []Laptop{laptopOf(self, 9, "acme/")}, true
	view.laptops[0].ExpiresAt = time.Now().Add(time.Hour)
	check("with a laptop only", true, nil, "1 false")
	if plan.outdated(time.Now()) || !plan.outdated(view.laptops[0].ExpiresAt) {
		t.Errorf("the plan is outdated at %s, want the laptop's expiry", plan.until)
	}
	view.laptops[0].ExpiresAt, view.whole = time.Now(), false
	check("expired, with an incomplete view", true, nil, "0 true")
	check("after it was cut off", true, nil, "")
	view.laptops[0].ExpiresAt, view.whole = time.Now().Add(time.Hour), true
	check("with a laptop again", true, nil, "1 false")
	view.err = errors.New("unreadable view")
	if err := m.step(t.Context(), self, true, &plan); !errors.Is(err, view.err) || len(plan.peers) != 1 {
		t.Errorf("with an unreadable view: %v, %+v, want the previous peer", err, plan.peers)
	}
	plan.peers[0].Expires, plan.until, device.applied = time.Now(), time.Now(), nil
	for range 2 { // each step must try to remove the laptop, because earlier attempts may have failed
		if err := m.step(t.Context(), self, true, &plan); !errors.Is(err, view.err) || len(plan.peers) != 0 {
			t.Errorf("expired, with an unreadable view: %v, %+v, want no peers", err, plan.peers)
		}
	}
	if fmt.Sprint(device.applied) != "[0 false 0 false]" {
		t.Errorf("expired, with an unreadable view: applied %v", device.applied)
	}
}
