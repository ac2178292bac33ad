package worker

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
)

var errAway = bourse.Errorf(bourse.CodeUnavailable, "the source is away")

// pair is two workers that know each other.
type pair struct {
	near, far         *host
	nearVols, farVols *memVolumes
	peers             *memPeers
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{peers: &memPeers{hosts: map[bourse.WorkerTag]*host{}}, nearVols: newMemVolumes(), farVols: newMemVolumes()}
	setup := func(id bourse.WorkerID, tag bourse.WorkerTag, vols *memVolumes) func(*Config) {
		return func(c *Config) {
			withVolumes(vols)(c)
			c.ID, c.Peers, c.Tag = id, p.peers, func() bourse.WorkerTag { return tag }
		}
	}
	p.near, p.far = newHost(t, setup("near", 1, p.nearVols)), newHost(t, setup("far", 2, p.farVols))
	p.peers.hosts[1], p.peers.hosts[2] = p.near, p.far
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

const poem = "the quick brown fox jumps over the lazy dog"

// A volume becomes a copy of a snapshot or of a volume, of this worker or of
// another, larger if asked, and nothing of the copying is left.
func TestFillFromAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.placeVolume()
		p.farVols.write(src.ID, poem)
		snap, err := p.far.snapshot(t.Context(), src.ID)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			to     *host
			vols   *memVolumes
			change func(*bourse.VolumeOrder)
			during bourse.VolumeState
			sizeGB int64
		}{
			"a snapshot here":       {p.far, p.farVols, fromSnapshot(snap), bourse.VolumeRestoring, 10},
			"a volume here":         {p.far, p.farVols, from(src), bourse.VolumeHydrating, 11},
			"a snapshot from afar":  {p.near, p.nearVols, fromSnapshot(snap), bourse.VolumeRestoring, 10},
			"a volume from afar":    {p.near, p.nearVols, from(src), bourse.VolumeHydrating, 11},
			"a second one, at once": {p.near, p.nearVols, from(src), bourse.VolumeHydrating, 11},
		} {
			v := c.to.placeVolume(c.change)
			if v.State != c.during {
				t.Errorf("%s: answered with state %s, want %s at once", name, v.State, c.during)
			}
			v = c.to.volumeReaches(v.ID, bourse.VolumeCreated)
			if mem, ok := c.vols.read(v.ID); !ok || mem.data != poem || mem.sizeGB != c.sizeGB {
				t.Errorf("%s: the host has %+v, want the poem in %d GB", name, mem, c.sizeGB)
			}
		}
		if _, forks := p.farVols.kept(); forks != 0 {
			t.Errorf("%d copies left at the source", forks)
		}
		p.near.verify()
		p.far.verify()
	})
}

// A source that is away is asked again, and what has come is not fetched
// twice, though the daemon dies in between.
func TestFillGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.placeVolume()
		p.farVols.write(src.ID, poem)
		chunks := len(chunksOf(poem))
		var calls atomic.Int64
		p.peers.setAway(func(call string) error {
			if n := calls.Add(1); call == "Chunk" && n%4 == 0 || n > 16 && n < 24 {
				return errAway
			}
			return nil
		})
		v := p.near.placeVolume(from(src))
		time.Sleep(150 * time.Millisecond) // virtual: some attempts
		if got := p.near.getVolume(v.ID).State; got != bourse.VolumeHydrating {
			t.Fatalf("the volume is %s, want it in the middle of being filled", got)
		}
		p.near.crash()
		p.near.start(nil)
		v = p.near.volumeReaches(v.ID, bourse.VolumeCreated)
		if mem, _ := p.nearVols.read(v.ID); mem.data != poem {
			t.Errorf("filled with %q", mem.data)
		}
		p.nearVols.mu.Lock()
		if p.nearVols.fetched != chunks {
			t.Errorf("%d chunks were fetched, want each of %d once", p.nearVols.fetched, chunks)
		}
		p.nearVols.mu.Unlock()
		p.near.verify()
	})
}

// A source that stays away makes the fill stuck: to be seen, to be retried, and
// to be ended by destroying the volume.
func TestFillIsStuckVisibly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.placeVolume()
		p.farVols.write(src.ID, poem)
		p.far.crash()
		a, b := p.near.placeVolume(from(src)), p.near.placeVolume(from(src))
		time.Sleep(time.Hour)
		runs, err := p.near.listRuns(false)
		if err != nil || len(runs) != 2 || runs[0].Status != string(fsm.Stuck) || !strings.Contains(runs[0].Error, "nobody knows worker 2") {
			t.Fatalf("runs: %+v, %v; want two that are stuck, and why", runs, err)
		}
		p.far.start(nil)
		for _, r := range runs {
			if r.Resource == resourceOfVolume(a.ID) {
				if err := p.near.engine.Retry(t.Context(), r.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
		p.near.volumeReaches(a.ID, bourse.VolumeCreated)
		if _, err := p.near.destroyVolume(t.Context(), b.ID); err != nil {
			t.Errorf("destroy the one that is stuck: %v", err)
		}
		if left, _ := p.nearVols.left(); len(left) != 1 {
			t.Errorf("the host has %v, want the filled one only", left)
		}
		p.near.verify()
	})
}

// Destroying a volume ends its filling, also when the daemon dies between the
// two.
func TestDestroyEndsAFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.placeVolume()
		p.farVols.write(src.ID, poem)
		p.peers.setAway(func(string) error { return errAway })
		v := p.near.placeVolume(from(src))
		if _, _, err := p.near.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, mounts(v.ID))}); err != nil {
			t.Fatal(err)
		}
		if m := p.near.getVolume(v.ID).Machine; m != "" {
			t.Errorf("machine %s got a volume that is being filled", m)
		}
		if v, err := p.near.destroyVolume(t.Context(), v.ID); err != nil || v.State != bourse.VolumeDestroyed {
			t.Errorf("destroy: %+v, %v", v, err)
		}
		if left, _ := p.nearVols.left(); len(left) != 0 {
			t.Errorf("the host has %v", left)
		}

		v = p.near.placeVolume(from(src))
		time.Sleep(time.Hour) // it is stuck
		if err := p.near.store.Update(t.Context(), destroying(v.ID)); err != nil {
			t.Fatal(err)
		}
		p.near.crash()
		p.near.start(nil)
		p.near.volumeReaches(v.ID, bourse.VolumeDestroyed)
		p.near.verify()
	})
}

// A source that says no makes a failed volume, which says why and takes
// nothing.
func TestFillFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.placeVolume(func(v *bourse.VolumeOrder) { v.SizeGB = 20 })
		gone := src
		gone.ID = bourse.NewVolumeID(2)
		for name, order := range map[string]func(*bourse.VolumeOrder){
			"not there": from(gone),
			"too large": func(v *bourse.VolumeOrder) { v.Source = src.ID },
		} {
			v := p.near.placeVolume(order)
			v = p.near.volumeReaches(v.ID, bourse.VolumeFailed)
			if v.Error == "" || p.near.usedDisk() != 0 {
				t.Errorf("%s: %+v, %d MiB taken; want to know why, and nothing taken", name, v, p.near.usedDisk())
			}
			if _, err := p.near.destroyVolume(t.Context(), v.ID); err != nil {
				t.Errorf("%s: destroy: %v", name, err)
			}
		}
		if left, _ := p.nearVols.left(); len(left) != 0 {
			t.Errorf("the host has %v", left)
		}
		p.near.verify()
	})
}

// A volume in use is copied for who forks it, when there is room for that.
func TestForkOfAVolumeInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.crash()
		src := p.far.placeVolume(func(v *bourse.VolumeOrder) { v.SizeGB = 99 })
		p.farVols.write(src.ID, poem)
		m := p.far.place(mounts(src.ID))
		p.peers.setAway(func(call string) error {
			if call == "Chunk" { // the machine goes on writing
				p.farVols.write(src.ID, strings.ToUpper(poem))
			}
			return nil
		})
		v := p.near.placeVolume(func(v *bourse.VolumeOrder) { v.Source, v.SizeGB = src.ID, 99 })
		v = p.near.volumeReaches(v.ID, bourse.VolumeCreated)
		if mem, _ := p.nearVols.read(v.ID); mem.data != poem {
			t.Errorf("filled with %q, want one moment of the source", mem.data)
		}
		if _, err := p.far.extendVolume(t.Context(), src.ID, 100); err != nil { // now there is no room
			t.Fatal(err)
		}
		if _, err := p.far.manifest(t.Context(), string(src.ID)); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("export on a full disk: %v, want insufficient_capacity", err)
		}
		p.far.must(p.far.destroy(t.Context(), m.ID, fabric.Act{Force: true}))
		if _, err := p.far.manifest(t.Context(), string(src.ID)); err != nil {
			t.Errorf("export of a volume that nobody uses: %v", err)
		}
	})
}
