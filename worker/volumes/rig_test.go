package volumes_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/worker/volumes"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// rig is a host with 100 GB for volumes, and a daemon that only manages volumes. The
// daemon can crash and start again.
type rig struct {
	*volumes.Volumes // belongs to the running daemon; nil if none is running

	t     testing.TB
	dir   string
	self  store.Identity
	vols  *volumetest.Host
	peers volumes.Peers

	state *state.State
	admit *admit.Host
	stop  context.CancelFunc
	done  chan error
}

func newRig(t testing.TB, id bourse.WorkerID, tag bourse.WorkerTag, peers volumes.Peers) *rig {
	t.Helper()
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() { // memory is faster than a disk
		t.Setenv("TMPDIR", "/dev/shm")
	}
	r := &rig{
		t: t, dir: t.TempDir(), vols: volumetest.NewHost(), peers: peers,
		self: store.Identity{Worker: id, Tag: tag, Region: "gru", CreatedAt: time.Now()},
	}
	t.Cleanup(r.crash)
	r.start()
	return r
}

// start starts a daemon and waits until it has recovered.
func (r *rig) start() {
	r.t.Helper()
	s, err := store.Open(store.Config{Dir: r.dir})
	if err != nil {
		r.t.Fatal(err)
	}
	r.state = state.New(r.self, s, slog.New(slog.DiscardHandler))
	r.admit = &admit.Host{
		Worker: r.self.Worker, Tag: r.self.Tag, Region: r.self.Region,
		Ledger:       admit.Ledger{Totals: bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: 100 << 10}}},
		VolumeLabels: r.vols.Labels(), Peers: r.peers != nil,
		Load: func() float64 { return 0 }, SpaceError: s.SpaceError, Drivers: []string{string(bourse.HostImage)},
	}
	r.admit.Labels.Store(&admit.Labels{})
	r.Volumes = volumes.New(volumes.Config{State: r.state, Admit: r.admit, Host: r.vols, Peers: r.peers, Dir: r.dir})
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	r.stop, r.done = cancel, make(chan error, 1)
	r.state.SetContext(ctx)
	if err := r.Recover(ctx); err != nil {
		r.t.Fatal(err)
	}
	group.Go(func() error { return r.state.Engine.Run(ctx) })
	group.Go(func() error { return r.Run(ctx) })
	go func() { r.done <- group.Wait() }()
}

// crash stops the daemon. The host's volumes remain.
func (r *rig) crash() {
	if r.Volumes == nil {
		return
	}
	r.stop()
	<-r.done
	_ = r.state.Store.Close()
	r.Volumes = nil
}

func (r *rig) order(change ...func(*bourse.VolumeOrder)) *bourse.Order {
	r.t.Helper()
	o := &bourse.Order{
		ID:      bourse.NewOrderID(),
		App:     bourse.App{Name: "web", ID: "01", Org: "personal", CreatedAt: time.Unix(1, 0).UTC()},
		Regions: []bourse.Choice{{"gru"}},
		Volume:  &bourse.VolumeOrder{Name: "data", SizeGB: 10},
	}
	for _, f := range change {
		f(o.Volume)
	}
	*o.Volume = o.Volume.WithDefaults()
	return o
}

// place claims an order for a volume and fails the test unless it is filled.
func (r *rig) place(change ...func(*bourse.VolumeOrder)) bourse.Volume {
	r.t.Helper()
	fill, refusal, err := r.Claim(r.t.Context(), &bourse.Claim{Order: *r.order(change...)})
	if err != nil || refusal != nil {
		r.t.Fatalf("claim: %+v, refusal %+v, error %v", fill, refusal, err)
	}
	return *fill.Volume
}

func (r *rig) get(id bourse.VolumeID) bourse.Volume {
	r.t.Helper()
	v, err := r.Record(r.t.Context(), id)
	if err != nil {
		r.t.Fatalf("volume %s: %v", id, err)
	}
	return v
}

// reaches waits until a volume is in a state.
func (r *rig) reaches(id bourse.VolumeID, want bourse.VolumeState) bourse.Volume {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Hour)
	defer cancel()
	v, err := r.Await(ctx, id, func(v *bourse.Volume) bool { return v.State == want })
	if err != nil {
		r.t.Fatalf("volume %s is %s (%s) and never became %s: %v", id, v.State, v.Error, want, err)
	}
	return v
}

// mount records a starting machine that mounts a volume, as a claim does, mounts the volume, and
// returns the machine.
func (r *rig) mount(id bourse.VolumeID) bourse.Machine {
	r.t.Helper()
	m := r.record(id)
	if _, err := r.Mount(r.t.Context(), &m); err != nil {
		r.t.Fatalf("mount volume %s: %v", id, err)
	}
	return m
}

// record records a starting machine that mounts a volume.
func (r *rig) record(id bourse.VolumeID) bourse.Machine {
	r.t.Helper()
	now, machine := time.Now(), bourse.NewMachineID(r.self.Tag)
	m := bourse.Machine{
		ID: machine, Name: string(machine), App: "web", AppID: "01", State: bourse.StateStarting, CreatedAt: now, UpdatedAt: now,
		Config: bourse.Config{Mounts: []bourse.Mount{{Volume: id, Path: "/data"}}},
	}
	err := r.state.Commit(r.t.Context(), m.ID, func(tx *store.Tx) error {
		if err := r.Attach(tx, &m); err != nil {
			return err
		}
		return tx.PutMachine(&m)
	})
	if err != nil {
		r.t.Fatalf("attach volume %s: %v", id, err)
	}
	return m
}

// unmount destroys a machine and detaches its volumes.
func (r *rig) unmount(m bourse.Machine) {
	r.t.Helper()
	if err := r.Unmount(r.t.Context(), &m); err != nil {
		r.t.Fatal(err)
	}
	for _, m.State = range []bourse.State{bourse.StateDestroying, bourse.StateDestroyed} {
		if err := r.state.Commit(r.t.Context(), m.ID, func(tx *store.Tx) error {
			if err := r.Detach(tx, &m); err != nil {
				return err
			}
			return tx.PutMachine(&m)
		}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// used returns the committed part of the disk.
func (r *rig) used() (taken bourse.MiB) {
	r.t.Helper()
	if err := r.state.Store.Sync(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.state.Store.View(func(tx *store.Tx) error {
		committed, err := tx.CommittedAt(time.Now())
		taken = bourse.MiB(committed.Of(bourse.ResourceDisk))
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return taken
}

// verify checks that the ledger contains exactly the disk space that the volumes take, and that this does not exceed
// the capacity (invariant 4).
func (r *rig) verify() {
	r.t.Helper()
	used := r.used()
	all, err := r.List(r.t.Context(), nil, func(*bourse.Volume) bool { return true })
	if err != nil {
		r.t.Fatal(err)
	}
	var sum int64
	for _, v := range all {
		sum += volumes.Takes(&v).Of(bourse.ResourceDisk)
	}
	if int64(used) != sum || sum > r.admit.Ledger.Totals.Of(bourse.ResourceDisk) {
		r.t.Errorf("the ledger has %d MiB, the volumes take %d", used, sum)
	}
}
