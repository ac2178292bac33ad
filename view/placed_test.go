package view

import (
	"bytes"
	"crypto"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// placedMachine returns a worker's machine with a broker's placement of its order in an app.
func placedMachine(t testing.TB, broker *wire.Placements, worker bourse.WorkerID, id bourse.MachineID, app bourse.AppName) bourse.Machine {
	t.Helper()
	order := bourse.Order{ID: bourse.NewOrderID(), App: bourse.App{Name: app, ID: string(app) + "-id"}}
	signed, err := broker.Sign(order.Placement(worker))
	if err != nil {
		t.Fatal(err)
	}
	return bourse.Machine{
		ID: id, App: app, AppID: order.App.ID, Worker: worker, Order: order.ID, Placement: signed, State: bourse.StateStarted,
		Config:    bourse.Config{StoredConfig: bourse.StoredConfig{Services: []byte(`[{"internal_port":80}]`)}},
		CreatedAt: time.Unix(1, 0).UTC(), UpdatedAt: time.Unix(1, 0).UTC(),
	}
}

// listedFor returns the IDs of the machines that a member lists for an app. It checks that all
// sources of such lists agree.
func listedFor(t testing.TB, m *member, app bourse.AppName) (ids []bourse.MachineID) {
	t.Helper()
	listed, err := Query(t.Context(), m.View, inventory.Machines(inventory.Filter{App: app}))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range listed {
		ids = append(ids, l.ID)
	}
	counts, err := Query(t.Context(), m.View, inventory.CountMachines())
	if err != nil {
		t.Fatal(err)
	}
	if n := counts[bourse.AppRef{Name: app, ID: string(app) + "-id"}]; n != len(ids) {
		t.Errorf("%d machines are listed for %s and %d counted", len(ids), app, n)
	}
	serving, err := Query(t.Context(), m.View, func(c *sqlite.Conn) ([]bourse.Machine, error) { return new(inventory.Serving).Read(c) })
	if err != nil {
		t.Fatal(err)
	}
	serving = slices.DeleteFunc(serving, func(m bourse.Machine) bool { return m.App != app })
	if len(serving) != len(ids) {
		t.Errorf("%d machines are listed for %s and %d serve", len(ids), app, len(serving))
	}
	return ids
}

// TestAWorkerCannotJoinAnApp checks that a machine belongs only to the app for which a broker
// has placed its order on its worker, whatever the worker publishes.
func TestAWorkerCannotJoinAnApp(t *testing.T) {
	broker := wire.NewPlacements("test", "b1", newTestKey(t, bourse.RoleBroker), time.Now)
	worker := wire.NewPlacements("test", "w2", newTestKey(t, bourse.RoleWorker), time.Now)
	good := placedMachine(t, broker, "w2", "00000200000001", "shop")
	none := placedMachine(t, broker, "w2", "00000200000002", "shop")
	none.Placement = nil
	itsOwn := placedMachine(t, worker, "w2", "00000200000003", "shop")
	otherApp := placedMachine(t, broker, "w2", "00000200000004", "blog")
	otherApp.App, otherApp.AppID = "shop", "shop-id"
	otherID := placedMachine(t, broker, "w2", "00000200000005", "shop")
	otherID.AppID = "another-id"
	copied := placedMachine(t, broker, "w1", "00000200000006", "shop")
	otherOrder := placedMachine(t, broker, "w2", "00000200000007", "shop")
	otherOrder.Order = bourse.NewOrderID()
	var rows []wire.Row
	for _, m := range []bourse.Machine{good, none, itsOwn, otherApp, otherID, copied, otherOrder} {
		rows = append(rows, inventory.MachineRow(&m))
	}
	cfg := Config{Site: "w9", Certified: true, Path: tempFile(t)}
	m := startMember(t, cfg)
	m.take(encoded(t, "w2", 1, 1, rows...))
	want := []bourse.MachineID{good.ID}
	if got := listedFor(t, m, "shop"); !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}

	// An update to other columns does not change the app. If the row names another app, the machine belongs to neither
	// app.
	m.take(encoded(t, "w2", 1, 2, wire.Row{Table: wire.TableMachines, Key: string(good.ID), Columns: map[string]wire.Value{"state": "stopped"}}))
	if got := listedFor(t, m, "shop"); !slices.Equal(got, want) {
		t.Errorf("listed after an update: %v, want %v", got, want)
	}
	m.take(encoded(t, "w2", 1, 3, wire.Row{Table: wire.TableMachines, Key: string(good.ID), Columns: map[string]wire.Value{"app": "blog"}}))
	if got := slices.Concat(listedFor(t, m, "shop"), listedFor(t, m, "blog")); len(got) != 0 {
		t.Errorf("listed after the machine moved to another app: %v", got)
	}
	m.take(encoded(t, "w2", 1, 4, wire.Row{Table: wire.TableMachines, Key: string(good.ID), Columns: map[string]wire.Value{"app": "shop"}}))

	// A new view that is filled from a snapshot must have the same result.
	var b bytes.Buffer
	if err := m.Snapshot(t.Context(), wire.Stream{Site: "w2", Epoch: 1}, &b); err != nil {
		t.Fatal(err)
	}
	again := startMember(t, Config{Site: "w8", Certified: true})
	if err := again.Restore(t.Context(), wire.Stream{Site: "w2", Epoch: 1}, &b); err != nil {
		t.Fatal(err)
	}
	if got := listedFor(t, again, "shop"); !slices.Equal(got, want) {
		t.Errorf("listed after a snapshot: %v, want %v", got, want)
	}
	if m.Digest().Heads[0].Hash != again.Digest().Heads[0].Hash {
		t.Error("the members disagree about the stream")
	}
	m.sound()
	again.sound()
}

// TestAVolumeIsPlaced checks that the same applies to volumes, and that a machine's placement
// does not place a volume.
func TestAVolumeIsPlaced(t *testing.T) {
	broker := wire.NewPlacements("test", "b1", newTestKey(t, bourse.RoleBroker), time.Now)
	order := bourse.Order{ID: bourse.NewOrderID(), App: bourse.App{Name: "shop", ID: "shop-id"}}
	volume := func(id bourse.VolumeID, o bourse.Order) wire.Row {
		signed, err := broker.Sign(o.Placement("w2"))
		if err != nil {
			t.Fatal(err)
		}
		return inventory.VolumeRow(&bourse.Volume{ID: id, App: "shop", AppID: "shop-id", Worker: "w2", Order: o.ID, Placement: signed})
	}
	placed := order
	placed.Volume = &bourse.VolumeOrder{}
	m := startMember(t, Config{Site: "w9", Certified: true})
	m.take(encoded(t, "w2", 1, 1, volume("vol_0000020000000001", placed), volume("vol_0000020000000002", order)))
	listed, err := Query(t.Context(), m.View, inventory.Volumes(inventory.VolumeFilter{App: "shop"}))
	if err != nil || len(listed) != 1 || listed[0].ID != "vol_0000020000000001" {
		t.Errorf("listed %+v, %v", listed, err)
	}
}

// distrusting is a Keys that verifies nobody until trust is set.
type distrusting struct {
	*wire.Key
	trust atomic.Bool
}

func (d *distrusting) Author(birth []byte, at time.Time) (bourse.WorkerID, bourse.Role, crypto.PublicKey, error) {
	if bytes.Equal(birth, testKey.Birth) || bytes.Equal(birth, d.Birth) || d.trust.Load() {
		return d.Key.Author(birth, at)
	}
	return "", "", nil, errors.New("of a CA that is not trusted")
}

// TestAPlacementIsVerifiedAgain checks that a row that arrived before its broker's CA was
// trusted belongs to its app once the CA is trusted.
func TestAPlacementIsVerifiedAgain(t *testing.T) {
	broker := wire.NewPlacements("test", "b1", newTestKey(t, bourse.RoleBroker), time.Now)
	machine := placedMachine(t, broker, "w2", "00000200000001", "shop")
	keys := &distrusting{Key: newTestKey(t, bourse.RoleBroker)}
	m := startMember(t, Config{Site: "w9", Certified: true, Keys: keys})
	m.take(encoded(t, "w2", 1, 1, inventory.MachineRow(&machine)))
	if got := listedFor(t, m, "shop"); len(got) != 0 {
		t.Errorf("listed %v before the CA is trusted", got)
	}
	keys.trust.Store(true)
	if err := m.submit(t.Context(), true, func(b *batch) error { return b.recheckPlacements() }); err != nil {
		t.Fatal(err)
	}
	if got := listedFor(t, m, "shop"); len(got) != 1 {
		t.Errorf("listed %v once the CA is trusted", got)
	}
	m.sound()
}

// TestCertificates checks that Certificates returns the certificates of the sites of all streams, of
// the brokers that wrote shared rows, and of those that placed machines.
func TestCertificates(t *testing.T) {
	placing, sharing := newTestKey(t, bourse.RoleBroker), newTestKey(t, bourse.RoleBroker)
	shop := placedMachine(t, wire.NewPlacements("test", "b1", placing, time.Now), "w2", "00000200000001", "shop")
	unplaced := shop
	unplaced.ID, unplaced.AppID = "00000200000002", "another-id"
	m := startMember(t, Config{Site: "w9", Certified: true})
	m.take(encoded(t, "w2", 1, 1, inventory.MachineRow(&shop), inventory.MachineRow(&unplaced)))
	m.take(signedTx(t, sealOf(sharing), "b2", 1, wire.Row{Table: wire.TableApps, Key: "blog", Columns: map[string]wire.Value{"id": "blog-id"}}))
	certs, err := m.Certificates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for who, want := range map[string][]byte{"w2": testSeal().Birth, "b1": placing.Birth, "b2": sharing.Birth} {
		if !slices.Contains(certs, string(want)) {
			t.Errorf("the certificate of %s is missing", who)
		}
	}
	if len(certs) != 3 {
		t.Errorf("%d certificates, want 3", len(certs))
	}
}
