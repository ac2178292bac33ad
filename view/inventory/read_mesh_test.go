package inventory

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/schema"
)

func TestMeshWorkers(t *testing.T) {
	c := SchemaConn(t)
	end := bourse.Mesh{Key: []byte{1}, Proof: []byte{2}, Endpoint: netip.MustParseAddrPort("192.0.2.1:51820")}
	published := end
	published.Peers = []bourse.MeshPeer{{Worker: "w2"}}
	Plant(t, c, "w1", WorkerRow(&bourse.Facts{Worker: "w1", Tag: 7, Mesh: &published}, false))
	Plant(t, c, "w2", WorkerRow(&bourse.Facts{Worker: "w2", Tag: 8}, false))
	odd := WorkerRow(&bourse.Facts{Worker: "w3"}, false)
	odd.Columns["mesh"] = `{"endpoint":"nowhere"}`
	Plant(t, c, "w3", odd)
	got, err := MeshWorkers()(c)
	want := []MeshWorker{
		{ID: "w1", Tag: 7, Mesh: &end, HostStatus: machinesapi.HostUnknown},
		{ID: "w2", Tag: 8, HostStatus: machinesapi.HostUnknown},
		{ID: "w3", HostStatus: machinesapi.HostUnknown},
	}
	if diff := cmp.Diff(want, got, ByValue); diff != "" || err != nil {
		t.Errorf("(-want +got): %v\n%s", err, diff)
	}
}

func TestPrivateMachines(t *testing.T) {
	c := SchemaConn(t)
	plant := func(site bourse.WorkerID, id bourse.MachineID, change func(m *bourse.Machine)) {
		m := bourse.Machine{ID: id, App: "shop", AppID: "a1", Order: bourse.OrderID(id), PrivateIP: netip.MustParseAddr("fdaa::2")}
		change(&m)
		Plant(t, c, site, MachineRow(&m))
	}
	plant("w1", "00000100000001", func(*bourse.Machine) {})
	plant("w2", "00000200000001", func(*bourse.Machine) {})
	plant("w1", "00000100000002", func(m *bourse.Machine) { m.AppID = "a2" })
	plant("w1", "00000100000003", func(m *bourse.Machine) { m.App = "other" })
	plant("w1", "00000100000004", func(m *bourse.Machine) { m.PrivateIP = netip.Addr{} })
	for _, id := range []bourse.MachineID{"00000200000003", "00000200000002"} { // the worker uses the placement of its machine again
		plant("w2", id, func(m *bourse.Machine) { m.Order = "00000200000001" })
	}
	plant("w3", "00000300000001", func(*bourse.Machine) {})
	if err := schema.Run(c, "UPDATE machine_rows SET placed = 0 WHERE site = 'w3'"); err != nil {
		t.Fatal(err)
	}
	got, err := PrivateMachines([]bourse.AppRef{{Name: "shop", ID: "a1"}, {Name: "nothing", ID: "a3"}})(c)
	app := bourse.AppRef{Name: "shop", ID: "a1"}
	want := []PrivateMachine{{"00000100000001", "w1", app}, {"00000200000001", "w2", app}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("(-want +got): %v\n%s", err, diff)
	}
}
