package container

import (
	"testing"
	"time"
)

// TestStopAfterShortTimeouts stops programs that ignore SIGTERM. Sometimes containerd notices before
// the driver that the timeout is over. The driver must then kill the program, too.
func TestStopAfterShortTimeouts(t *testing.T) {
	h := newHost(t, nil)
	image := h.busybox(t)
	d, _ := h.recovered(t)
	for i := range 12 {
		o := order(image, sh("trap '' TERM; "+runScript)...)
		if _, err := d.Start(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		timeout := time.Duration(i+2) * 2 * time.Millisecond
		if err := d.Stop(t.Context(), o.ID, "SIGTERM", timeout); err != nil {
			t.Errorf("Stop with a timeout of %v: %v", timeout, err)
		}
		if err := d.Destroy(t.Context(), o.ID.Machine); err != nil {
			t.Fatal(err)
		}
	}
}
