package volumes_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse/store"
)

// The version of a volume's record increases at each change, even if the clock was set back.
// Otherwise, brokers would keep the previous record.
func TestVersionsGrowAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRig(t, "w1", 1, nil)
		defer h.crash()
		v := h.place()
		v.UpdatedAt = v.UpdatedAt.Add(time.Hour)
		if err := h.state.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.PutVolume(&v) }); err != nil {
			t.Fatal(err)
		}
		h.mount(v.ID)
		if got := h.get(v.ID); got.Machine == "" || !got.UpdatedAt.After(v.UpdatedAt) {
			t.Errorf("the mounted volume's version is %s, want one after %s", got.UpdatedAt, v.UpdatedAt)
		}
	})
}
