package volumes_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
)

// If the host cannot create a volume, the order is refused and nothing is left behind.
func TestAVolumeThatCannotBeMadeIsARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason bourse.RefusalReason
	}{
		"at once":       {bourse.Errorf(bourse.CodeInvalid, "no"), bourse.RefusedDriver},
		"disk full":     {bourse.Errorf(bourse.CodeInsufficient, "full"), bourse.RefusedUnavailable},
		"after retries": {errors.New("mkfs"), bourse.RefusedDriver},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newRig(t, "w1", 1, nil)
			vols := h.vols
			defer h.crash()
			vols.SetFault(func(call, _ string) error {
				if call == "Create" {
					return c.err
				}
				return nil
			})
			_, r, err := h.Claim(t.Context(), &bourse.Claim{Order: *h.order()})
			if err != nil || r == nil || r.Reason != c.reason {
				t.Errorf("%s: %+v, %v; want %s", name, r, err, c.reason)
			}
			if left, _ := vols.Left(); len(left) != 0 || h.used() != 0 {
				t.Errorf("%s: the host has %v, %d MiB taken", name, left, h.used())
			}
			h.verify()
		})
	}
}

// If the first claim fails to create the volume, a repeated claim that arrived in the
// meantime is also refused.
func TestARepeatedClaimOfAVolumeThatCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRig(t, "w1", 1, nil)
		defer h.crash()
		creating := make(chan struct{})
		h.vols.SetFault(func(call, _ string) error {
			if call != "Create" {
				return nil
			}
			<-creating
			return bourse.Errorf(bourse.CodeInvalid, "no")
		})
		claim := &bourse.Claim{Order: *h.order()}
		results := make(chan string, 2)
		for range 2 {
			go func() {
				fill, r, err := h.Claim(t.Context(), claim)
				results <- fmt.Sprintf("filled: %t, refused: %t, failed: %t", fill != nil, r != nil && r.Reason == bourse.RefusedDriver, err != nil)
			}()
			synctest.Wait()
		}
		close(creating)
		for range 2 {
			if got, want := <-results, "filled: false, refused: true, failed: false"; got != want {
				t.Errorf("%s; want %s", got, want)
			}
		}
		h.verify()
	})
}

func TestExtendSaysNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRig(t, "w1", 1, nil)
		vols := h.vols
		defer h.crash()
		v := h.place()
		for size, want := range map[int64]bourse.Code{9: bourse.CodeInvalid, -1: bourse.CodeInvalid, 101: bourse.CodeInsufficient, 1 << 62: bourse.CodeInvalid} {
			if _, err := h.Extend(t.Context(), v.ID, size); bourse.CodeOf(err) != want {
				t.Errorf("extend to %d: %v, want %s", size, err, want)
			}
		}
		vols.SetFault(func(call, _ string) error {
			if call == "Extend" {
				return bourse.Errorf(bourse.CodeFailedPrecondition, "damaged")
			}
			return nil
		})
		if _, err := h.Extend(t.Context(), v.ID, 20); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
			t.Errorf("extend a damaged one: %v", err)
		}
		if got := h.get(v.ID); got.State != bourse.VolumeCreated || got.Spec.SizeGB != 10 || h.used() != 10<<10 {
			t.Errorf("afterwards: %+v, %d MiB taken; want no change", got, h.used())
		}
		if _, err := h.Extend(t.Context(), bourse.NewVolumeID(1), 20); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("extend a missing volume: %v", err)
		}
		h.verify()
	})
}
