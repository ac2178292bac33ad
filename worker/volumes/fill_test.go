package volumes_test

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/worker/volumes"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

var errAway = bourse.Errorf(bourse.CodeUnavailable, "the source is unavailable")

// pair is two workers that can read each other's volumes.
type pair struct {
	near, far *rig
	peers     *volumetest.Peers
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{peers: &volumetest.Peers{}}
	p.peers.Find = func(tag bourse.WorkerTag) *volumes.Volumes {
		for _, r := range []*rig{p.near, p.far} {
			if r != nil && r.self.Tag == tag {
				return r.Volumes
			}
		}
		return nil
	}
	p.near, p.far = newRig(t, "near", 1, p.peers), newRig(t, "far", 2, p.peers)
	return p
}

func (p *pair) crash() {
	p.near.crash()
	p.far.crash()
}

func from(v bourse.Volume) func(*bourse.VolumeOrder) {
	return func(o *bourse.VolumeOrder) { o.Source, o.SizeGB = v.ID, v.Spec.SizeGB+1 }
}

func fromSnapshot(s bourse.Snapshot) func(*bourse.VolumeOrder) {
	return func(o *bourse.VolumeOrder) { o.Snapshot = s.ID }
}

// destroying records that a volume is being destroyed, without a run that does so. This
// is the state that a daemon leaves if it dies right after recording the intent.
func destroying(id bourse.VolumeID) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		v, err := tx.Volume(id)
		v.State = bourse.VolumeDestroying
		return errors.Join(err, tx.PutVolume(&v))
	}
}

// A volume can be filled from a snapshot or a volume, on the same or another worker,
// and be larger than its source. Nothing remains of the temporary copies.
func TestFillFromAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.place()
		p.far.vols.Write(src.ID, poem)
		snap, err := p.far.Snapshot(t.Context(), src.ID)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			to     *rig
			change func(*bourse.VolumeOrder)
			during bourse.VolumeState
			sizeGB int64
		}{
			"a snapshot here":                      {p.far, fromSnapshot(snap), bourse.VolumeRestoring, 10},
			"a volume here":                        {p.far, from(src), bourse.VolumeHydrating, 11},
			"a snapshot on another worker":         {p.near, fromSnapshot(snap), bourse.VolumeRestoring, 10},
			"a volume on another worker":           {p.near, from(src), bourse.VolumeHydrating, 11},
			"a second one, immediately afterwards": {p.near, from(src), bourse.VolumeHydrating, 11},
		} {
			v := c.to.place(c.change)
			if v.State != c.during {
				t.Errorf("%s: the claim returned state %s, want %s", name, v.State, c.during)
			}
			v = c.to.reaches(v.ID, bourse.VolumeCreated)
			if mem, ok := c.to.vols.Read(v.ID); !ok || mem.Data != poem || mem.SizeGB != c.sizeGB {
				t.Errorf("%s: the host has %+v, want the poem in %d GB", name, mem, c.sizeGB)
			}
		}
		synctest.Wait()
		if _, forks := p.far.vols.Kept(); forks != 0 {
			t.Errorf("%d copies were not removed from the source", forks)
		}
		p.near.verify()
		p.far.verify()
	})
}

// If a source is temporarily unavailable, the volume is filled later. Data that has
// arrived is not fetched again, even if the daemon dies in between.
func TestFillResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.place()
		p.far.vols.Write(src.ID, poem)
		var calls atomic.Int64
		p.peers.SetAway(func(string) error { // fails in the middle of the data
			if n := calls.Add(1); n >= 120 && n < 128 {
				return errAway
			}
			return nil
		})
		v := p.near.place(from(src))
		time.Sleep(150 * time.Millisecond) // virtual time for some attempts
		if got := p.near.get(v.ID).State; got != bourse.VolumeHydrating {
			t.Fatalf("the volume is %s, want it only partly filled", got)
		}
		p.near.crash()
		p.near.start()
		v = p.near.reaches(v.ID, bourse.VolumeCreated)
		if mem, _ := p.near.vols.Read(v.ID); mem.Data != poem {
			t.Errorf("filled with %q", mem.Data)
		}
		if got := p.near.vols.Fetched(); got != len(poem) {
			t.Errorf("%d bytes were fetched, want each of %d once", got, len(poem))
		}
		p.near.verify()
	})
}

// If a source stays unavailable, the fill's run becomes stuck. An operator can see the stuck run and retry it, and
// destroying the volume ends it.
func TestFillIsStuckVisibly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.place()
		p.far.vols.Write(src.ID, poem)
		p.far.crash()
		a, b := p.near.place(from(src)), p.near.place(from(src))
		time.Sleep(time.Hour)
		runs := p.near.state.Engine.Runs()
		if len(runs) != 2 || runs[0].Status != fsm.Stuck || !strings.Contains(runs[0].Error, "worker 2 is unknown") {
			t.Fatalf("runs: %+v; want two stuck runs with their errors", runs)
		}
		p.far.start()
		for _, r := range runs {
			if r.Resource == state.OfVolume(a.ID) {
				if err := p.near.state.Engine.Retry(t.Context(), r.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		p.near.reaches(a.ID, bourse.VolumeCreated)
		if _, err := p.near.Destroy(t.Context(), b.ID); err != nil {
			t.Errorf("destroy the volume whose fill is stuck: %v", err)
		}
		if left, _ := p.near.vols.Left(); len(left) != 1 {
			t.Errorf("the host has %v, want only the filled volume", left)
		}
		p.near.verify()
	})
}

// Destroying a volume ends its fill, even if the daemon dies after it has recorded the
// intent.
func TestDestroyEndsAFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.place()
		p.far.vols.Write(src.ID, poem)
		p.peers.SetAway(func(string) error { return errAway })
		v := p.near.place(from(src))
		mounting := p.near.order()
		mounting.Volume = nil
		mounting.Config = bourse.Config{
			Image: bourse.ImageHost, Guest: &bourse.Guest{CPUs: 1, CPUKind: bourse.CPUShared, MemoryMB: 64},
			Mounts: []bourse.Mount{{Volume: v.ID, Path: "/data"}},
		}
		if err := p.near.state.Store.View(func(tx *store.Tx) error {
			d, err := p.near.admit.Decide(tx, mounting, time.Now())
			if d.Refusal == nil || d.Refusal.Reason != bourse.RefusedVolume {
				t.Errorf("a machine that mounts a volume being filled: %+v, want a refusal", d.Refusal)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if v, err := p.near.Destroy(t.Context(), v.ID); err != nil || v.State != bourse.VolumeDestroyed {
			t.Errorf("destroy: %+v, %v", v, err)
		}
		if left, _ := p.near.vols.Left(); len(left) != 0 {
			t.Errorf("the host has %v", left)
		}

		v = p.near.place(from(src))
		time.Sleep(time.Hour) // by now, the fill is stuck
		if err := p.near.state.Store.Update(t.Context(), destroying(v.ID)); err != nil {
			t.Fatal(err)
		}
		p.near.crash()
		p.near.start()
		p.near.reaches(v.ID, bourse.VolumeDestroyed)
		p.near.verify()
	})
}

// If the source refuses, the volume fails. Its record contains the reason, and it takes
// no disk.
func TestFillFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.place(func(v *bourse.VolumeOrder) { v.SizeGB = 20 })
		gone := src
		gone.ID = bourse.NewVolumeID(2)
		for name, order := range map[string]func(*bourse.VolumeOrder){
			"missing":   from(gone),
			"too large": func(v *bourse.VolumeOrder) { v.Source = src.ID },
		} {
			v := p.near.place(order)
			v = p.near.reaches(v.ID, bourse.VolumeFailed)
			if v.Error == "" || p.near.used() != 0 {
				t.Errorf("%s: %+v, %d MiB taken; want a reason, and nothing taken", name, v, p.near.used())
			}
			if _, err := p.near.Destroy(t.Context(), v.ID); err != nil {
				t.Errorf("%s: destroy: %v", name, err)
			}
		}
		if left, _ := p.near.vols.Left(); len(left) != 0 {
			t.Errorf("the host has %v", left)
		}
		p.near.verify()
	})
}

// A volume in use is copied when another worker forks it, if there is room for the
// copy.
func TestForkOfAVolumeInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.place(func(v *bourse.VolumeOrder) { v.SizeGB = 99 })
		p.far.vols.Write(src.ID, poem)
		m := p.far.mount(src.ID)
		p.peers.SetAway(func(call string) error {
			if call == "Read" { // the machine continues to write
				p.far.vols.Write(src.ID, strings.ToUpper(poem))
			}
			return nil
		})
		v := p.near.place(func(v *bourse.VolumeOrder) { v.Source, v.SizeGB = src.ID, 99 })
		v = p.near.reaches(v.ID, bourse.VolumeCreated)
		if mem, _ := p.near.vols.Read(v.ID); mem.Data != poem {
			t.Errorf("filled with %q, want the source's content at one moment", mem.Data)
		}
		if _, err := p.far.Extend(t.Context(), src.ID, 100); err != nil { // this leaves no room for a copy
			t.Fatal(err)
		}
		if err := p.far.Export(t.Context(), string(src.ID), volume.Position{}, io.Discard); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("export on a full disk: %v, want insufficient_capacity", err)
		}
		p.far.unmount(m)
		if err := p.far.Export(t.Context(), string(src.ID), volume.Position{}, io.Discard); err != nil {
			t.Errorf("export of an unused volume: %v", err)
		}
	})
}
