package volumes_test

import (
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/worker/admit"
)

// TestVirtualMachines gives volumes to virtual machines: once a virtual machine has used a volume, the volume is never mounted
// on the host again.
func TestVirtualMachines(t *testing.T) {
	r := newRig(t, "w1", 1, nil)
	const image = "test.local/image"
	kinds := func(runtime string) map[bourse.ImageKind]map[string]string {
		return map[bourse.ImageKind]map[string]string{bourse.RegistryImage: {driver.LabelDefaultRuntime: runtime}}
	}
	for name, c := range map[string]struct {
		worker, image, order string // the worker's runtime, and the order's image and runtime
		vm                   bool
	}{
		"an order for a virtual machine":                          {"io.containerd.runc.v2", image, bourse.RuntimeVM, true},
		"an order for a container":                                {bourse.RuntimeVM, image, "io.containerd.runc.v2", false},
		"an image on a worker with virtual machines":              {bourse.RuntimeVM, image, "", true},
		"an image on a worker with containers":                    {"io.containerd.runc.v2", image, "", false},
		"a program of the host on a worker with virtual machines": {bourse.RuntimeVM, bourse.ImageHost, "", false},
	} {
		r.admit.Labels.Store(&admit.Labels{ByKind: kinds(c.worker)})
		v := r.place(func(v *bourse.VolumeOrder) { v.SizeGB = 1 })
		m := r.record(v.ID)
		m.Config.Image, m.Config.Runtime = c.image, c.order
		list, err := r.Mount(t.Context(), &m)
		if got, _ := r.vols.Read(v.ID); err != nil || got.VM != c.vm || !got.Mounted || len(list) != 1 {
			t.Errorf("%s: mounts %v, %v; a virtual machine's: %t, want %t", name, list, err, got.VM, c.vm)
		}
		if x, err := r.Extend(t.Context(), v.ID, 2); err != nil || x.NeedsRestart != c.vm {
			t.Errorf("%s: an extended volume needs a restart: %t, %v; want %t", name, x.NeedsRestart, err, c.vm)
		}
		if _, err := r.Snapshot(t.Context(), v.ID); (bourse.CodeOf(err) == bourse.CodeFailedPrecondition) != c.vm || len(r.get(v.ID).Snapshots) == 1 == c.vm {
			t.Errorf("%s: a snapshot of a volume in use: %v, %+v", name, err, r.get(v.ID).Snapshots)
		}
		r.unmount(m)
		if got, _ := r.vols.Read(v.ID); got.Mounted {
			t.Errorf("%s: the volume is still in use", name)
		}
		r.crash()
		r.start()
		next := r.record(v.ID)
		next.Config.Image, next.Config.Runtime = image, "io.containerd.runc.v2"
		if _, err := r.Mount(t.Context(), &next); (bourse.CodeOf(err) == bourse.CodeFailedPrecondition) != c.vm {
			t.Errorf("%s, then a container: %v", name, err)
		}
	}
}
