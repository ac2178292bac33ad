package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/network"
)

// The operator decides which machines get private networks. The others use the host's network and get a $PORT.
func TestNetworkModes(t *testing.T) {
	for _, c := range []struct {
		mode        NetworkMode
		image, host bool // whether machines of this kind have private networks
	}{
		{"", true, false},
		{NetworkContainers, true, false},
		{NetworkHost, false, false},
		{NetworkAll, true, true},
	} {
		t.Run(fmt.Sprint("mode=", c.mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newRigged(t, func() *rig {
					r := newRig()
					r.mode = c.mode
					return r
				})
				h.start(nil)
				defer h.crash()
				for name, own := range map[string]bool{rigImage: c.image, bourse.ImageHost: c.host} {
					m := h.place(image(name))
					attached := slices.Contains(h.rig.network.attached(), m.ID)
					if attached != own || m.PrivateIP.IsValid() != own || (m.Boot.Port == 0) != own {
						t.Errorf("%s: attached %t, address %s, port %d; want a private network: %t", name, attached, m.PrivateIP, m.Boot.Port, own)
					}
					m = h.must(h.machines.Restart(t.Context(), m.ID, fabric.MachineAction{}))
					if (m.Boot.Port == 0) != own || slices.Contains(h.rig.network.attached(), m.ID) != own {
						t.Errorf("%s, restarted: port %d", name, m.Boot.Port)
					}
				}
				h.verify()
			})
		})
	}
}

// After a restart, the host has networks for the machines that may run, and no others.
func TestRecoveryOfNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		running, stopped := h.place(image(rigImage)), h.place(image(rigImage))
		h.must(h.machines.Stop(t.Context(), stopped.ID, fabric.MachineAction{}))
		h.reaches(stopped.ID, bourse.StateStopped)
		h.crash()
		stray := network.Spec{Machine: "abcdef01234567", App: "web", Network: "org:x"}
		for _, spec := range []network.Spec{stray, {Machine: stopped.ID, App: stopped.App, Network: stopped.Network}} {
			if _, err := h.rig.network.Attach(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
		h.start(nil)
		defer h.crash()
		if got := h.rig.network.attached(); !slices.Equal(got, []bourse.MachineID{running.ID}) {
			t.Errorf("networks of %v, want only that of %s", got, running.ID)
		}
	})
}

// If a network temporarily cannot be removed, its machine can still stop, and the network is removed later.
func TestANetworkThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		m := h.place(image(rigImage))
		h.rig.network.failing(func(_ context.Context, call string, _ bool) error {
			if call == "Detach" {
				return bourse.Errorf(bourse.CodeUnavailable, "busy")
			}
			return nil
		})
		h.must(h.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
		h.reaches(m.ID, bourse.StateStopped)
		h.must(h.machines.Start(t.Context(), m.ID, fabric.MachineAction{}))
		h.rig.network.failing(nil)
		h.must(h.machines.Destroy(t.Context(), m.ID, fabric.MachineAction{Force: true}))
		h.leftNothing()
	})
}
