package worker

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// If sixteen machines claim one volume at the same time, exactly one gets it.
func TestAVolumeHasOneMachine(t *testing.T) {
	h, vols := newVolumeHost(t)
	v := h.placeVolume()
	var group sync.WaitGroup
	fills, reasons := make(chan bourse.MachineID, 16), make(chan string, 16)
	for range 16 {
		order := newOrder(t, mounts(v.ID))
		group.Go(func() {
			fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
			switch {
			case err != nil:
				t.Errorf("claim: %v", err)
			case fill != nil:
				fills <- fill.Machine.ID
			case refusal.Reason != bourse.RefusedVolume || refusal.Resource != string(v.ID):
				t.Errorf("refusal %+v, want a refusal because of the volume", refusal)
			default:
				reasons <- refusal.Detail
			}
		})
	}
	group.Wait()
	if len(fills) != 1 || len(reasons) != 15 {
		t.Fatalf("%d machines got the volume, %d were refused", len(fills), len(reasons))
	}
	holder := <-fills
	if got := h.getVolume(v.ID).Machine; got != holder {
		t.Errorf("the volume belongs to %s, want %s", got, holder)
	}
	if mem, _ := vols.Read(v.ID); mem.Mounts != 1 {
		t.Errorf("mounted %d times, want once", mem.Mounts)
	}
	if got := <-reasons; !strings.Contains(got, "already claimed by machine "+string(holder)) {
		t.Errorf("refusal %q, want one that names the machine", got)
	}
	h.must(h.machines.Destroy(t.Context(), holder, fabric.MachineAction{Force: true}))
	h.place(mounts(v.ID)) // the volume is free again
	h.verify()
}

// Invariant 4 for volumes: the disk is never oversold, even if volumes are created,
// extended, snapshotted and destroyed at the same time.
func TestInvariant4DiskNeverOversold(t *testing.T) {
	vols := volumetest.NewHost()
	h := newHost(t, func(c *Config) { withVolumes(vols)(c); c.Capacity.Disk = 12 << 10 })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers, checker sync.WaitGroup
	checker.Go(func() {
		for ctx.Err() == nil {
			h.verify()
		}
	})
	refusals := make(chan struct{}, 1<<12)
	for n := range uint64(6) {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(n, 4))
			for range 8 {
				fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *newVolumeOrder(t, func(v *bourse.VolumeOrder) { v.SizeGB = 1 + rng.Int64N(4) })})
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if refusal != nil {
					refusals <- struct{}{}
					continue
				}
				id := fill.Volume.ID
				vols.Write(id, strings.Repeat("x", rng.IntN(1<<10)))
				if _, err := h.volumes.Extend(ctx, id, fill.Volume.Spec.SizeGB+rng.Int64N(4)); bourse.CodeOf(err) == bourse.CodeInsufficient {
					refusals <- struct{}{}
					if !strings.Contains(err.Error(), "insufficient disk") {
						t.Errorf("extend: %v, want the Machines API's phrase", err)
					}
				} else if err != nil {
					t.Errorf("extend: %v", err)
				}
				if _, err := h.volumes.Snapshot(ctx, id); bourse.CodeOf(err) == bourse.CodeInsufficient {
					refusals <- struct{}{}
				} else if err != nil {
					t.Errorf("snapshot: %v", err)
				}
				if m, r, err := h.claim(ctx, &bourse.Claim{Order: *newOrder(t, mounts(id))}); err != nil || r != nil && r.Reason != bourse.RefusedResource {
					t.Errorf("machine: %+v, %v", r, err)
				} else if m != nil {
					h.must(h.machines.Destroy(ctx, m.Machine.ID, fabric.MachineAction{Force: true}))
				}
				if _, err := h.volumes.Destroy(ctx, id); err != nil {
					t.Errorf("destroy: %v", err)
				}
			}
		})
	}
	workers.Wait()
	cancel()
	checker.Wait()
	if len(refusals) == 0 {
		t.Error("nothing was refused, so the test requests too little")
	}
	if err := h.DestroyAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.verify()
	if left, _ := vols.Left(); h.usedDisk() != 0 || len(left) != 0 {
		t.Errorf("%d MiB taken at the end, the host has %v; want nothing", h.usedDisk(), left)
	}
}

// Invariant 7 for volumes: after any number of claims and cancellations of one order, in any sequence, there is at most
// one volume, and none if the order was canceled.
func TestInvariant7OneVolumeForAnOrder(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			h, vols := newVolumeHost(t)
			defer h.crash()
			order := newVolumeOrder(t)
			canceled := false
			var group sync.WaitGroup
			for range 2 + rng.IntN(6) {
				delay := time.Duration(rng.IntN(3)) * time.Millisecond
				cancels := rng.IntN(3) == 0
				canceled = canceled || cancels
				group.Go(func() {
					time.Sleep(delay)
					var err error
					if cancels {
						_, err = h.cancel(t.Context(), order.ID)
					} else {
						_, _, err = h.claim(t.Context(), &bourse.Claim{Order: *order})
					}
					if err != nil {
						t.Errorf("seed %d: cancels %t: %v", seed, cancels, err)
					}
				})
			}
			group.Wait()
			if canceled { // a claim after the cancellation
				if _, r, err := h.claim(t.Context(), &bourse.Claim{Order: *order}); err != nil || r == nil || r.Reason != bourse.RefusedCanceled {
					t.Errorf("seed %d: claim after the cancellation: %+v, %v", seed, r, err)
				}
			}
			time.Sleep(time.Minute)
			want := 1
			if canceled {
				want = 0
			}
			if left, _ := vols.Left(); len(left) != want {
				t.Errorf("seed %d: the host has %v, want %d volumes (canceled: %t)", seed, left, want, canceled)
			}
			h.verify()
		})
	}
}

func TestARepeatedClaimGivesTheSameVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newVolumeHost(t)
		defer h.crash()
		claim := &bourse.Claim{Order: *newVolumeOrder(t)}
		claim.Order.HasChosenID = true
		first, _, err := h.claim(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := h.claim(t.Context(), claim)
		if err != nil || !again.Repeated || again.Volume.ID != first.Volume.ID {
			t.Errorf("repeated: %+v, %v; want volume %s", again, err, first.Volume.ID)
		}
		q, err := h.quote(t.Context(), &claim.Order)
		if err != nil || q.FilledVolume == nil || q.FilledVolume.ID != first.Volume.ID {
			t.Errorf("quote: %+v, %v; want a filled order", q, err)
		}
		if d, err := h.decision(t.Context(), claim.Order.ID); err != nil || d.Volume != first.Volume.ID || d.Outcome != bourse.OutcomeFilled {
			t.Errorf("decision: %+v, %v; want the order filled by %s", d, err, first.Volume.ID)
		}
		h.place(mounts(first.Volume.ID))
		if _, err := h.cancel(t.Context(), claim.Order.ID); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("cancel of a volume in use: %v, want failed_precondition", err)
		}
	})
}

// The daemon stops while it retries to create a claimed volume. The next daemon creates
// the volume, so the claim must end with an unknown outcome rather than a refusal.
func TestADaemonStopsDuringTheClaimOfAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		vols := volumetest.NewHost()
		var broken atomic.Bool
		broken.Store(true)
		vols.SetFault(func(call, _ string) error {
			if call == "Create" && broken.Load() {
				return bourse.Errorf(bourse.CodeUnavailable, "broken")
			}
			return nil
		})
		h := newHostDown(t, withVolumes(vols))
		h.start(nil)
		defer h.crash()
		claim := &bourse.Claim{Order: *newVolumeOrder(t)}
		time.AfterFunc(time.Millisecond, func() { h.stop() })
		if fill, refusal, err := h.claim(t.Context(), claim); refusal != nil || bourse.CodeOf(err) != bourse.CodeTimeout {
			t.Errorf("claim: fill %+v, refusal %+v, error %v; want %s", fill, refusal, err, bourse.CodeTimeout)
		}
		h.crash()
		broken.Store(false)
		h.start(nil)
		if _, refusal, err := h.claim(t.Context(), claim); refusal != nil || err != nil {
			t.Errorf("repeated claim: refusal %+v, error %v; want the volume", refusal, err)
		}
	})
}
