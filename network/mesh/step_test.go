package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// fakeEnd is an end of the mesh that records calls of Apply.
type fakeEnd struct {
	err     error
	applied []string
}

func (e *fakeEnd) Apply(_ context.Context, _ bourse.WorkerTag, peers []Peer, keep bool) error {
	e.applied = append(e.applied, fmt.Sprint(len(peers), keep))
	return e.err
}

func (e *fakeEnd) Status(peers []Peer) ([]bourse.MeshPeer, error) {
	out := make([]bourse.MeshPeer, len(peers))
	for i, p := range peers {
		out[i] = bourse.MeshPeer{Worker: p.Worker, Machines: len(p.Machines), Received: 1}
	}
	return out, nil
}

func (*fakeEnd) Exists() bool           { return true }
func (*fakeEnd) Ended() <-chan struct{} { return nil }

type fakeNetworks struct {
	names     []string
	recovered bool
}

func (n *fakeNetworks) Networks() ([]string, bool)                             { return n.names, n.recovered }
func (*fakeNetworks) Changed() <-chan struct{}                                 { return nil }
func (*fakeNetworks) SetRemotes(context.Context, []network.Remote, bool) error { return nil }

type stepView struct {
	workers  []Worker
	machines []Machine
	whole    bool
}

func (v *stepView) Members(context.Context, []string) ([]Worker, []Machine, error) {
	return v.workers, v.machines, nil
}
func (v *stepView) Whole() bool            { return v.whole }
func (*stepView) Changed() <-chan struct{} { return nil }

// TestStep checks that a step changes nothing before the networks are recovered, removes nothing while the view is
// incomplete, reports a peer as disconnected after an error, and removes all peers when there is no machine.
func TestStep(t *testing.T) {
	self, other := member("self", 1), member("other", 2)
	device, networks := &fakeEnd{}, &fakeNetworks{}
	view := &stepView{[]Worker{self, other}, []Machine{machineOf(self, 1, "acme/"), machineOf(other, 1, "acme/")}, true}
	m := &Mesh{self: self.ID, announce: self.Mesh, device: device, networks: networks, view: view, log: slog.New(slog.DiscardHandler)}
	var plan []Peer
	check := func(when string, changed bool, failure error, applied string, peers ...bourse.MeshPeer) {
		t.Helper()
		device.err, device.applied = failure, nil
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
	check("without machines", false, nil, "0 false")
}
