package worker

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// rig contains the parts of a host that runs images. It outlives the host's daemons. A
// nil rig stands for a host that cannot run images.
type rig struct {
	containers *drivertest.Memory
	images     *memImages
	network    *memNetwork
	volumes    *volumetest.Host
	mode       NetworkMode
	pull       bool // the host cannot run images, and pollers run its machines; see pull_test.go

	volume bourse.VolumeID // the volume that the scenario's first machine mounts
}

const (
	rigImage  = "example.com/web:1"
	rigNext   = "example.com/web:2"
	rigBytes  = 64 << 20
	rigDevice = "example.com/gpu="
)

func newRig() *rig {
	r := &rig{containers: drivertest.NewMemory(), images: newMemImages(), network: newMemNetwork(), volumes: volumetest.NewHost()}
	r.images.push(rigImage, rigBytes)
	r.images.push(rigNext, rigBytes)
	return r
}

// setup configures a new daemon with the parts of the rig.
func (r *rig) setup(c *Config) {
	if r.pull {
		c.Parts = Parts{Pull: roomy{r.containers.Driver()}}
		return
	}
	c.Parts = Parts{Container: r.containers.Driver(), Images: r.images, Network: r.network, Volumes: r.volumes}
	c.Capacity.Disk = 1 << 20
	c.Capacity.Devices = map[string][]string{"a10": {rigDevice + "0", rigDevice + "1"}}
	c.NetworkMode = r.mode
}

// newRigged returns a host whose daemon is not started. The host has the rig that the function with
// creates, or none if with is nil.
func newRigged(t testing.TB, with func() *rig) *host {
	t.Helper()
	if with == nil {
		return newHostDown(t, nil)
	}
	r := with()
	h := newHostDown(t, r.setup)
	h.rig = r
	return h
}

// newImageHost returns a host that can run images, with a started worker.
func newImageHost(t testing.TB) *host {
	t.Helper()
	h := newRigged(t, newRig)
	h.start(nil)
	return h
}

// prepareRig creates the volume that the scenario's first machine mounts.
func (h *host) prepareRig(ctx context.Context, d *diary) error {
	if h.rig == nil || h.rig.pull {
		return nil
	}
	order := newOrder(h.t, volumeOrder)
	fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *order})
	switch {
	case err != nil:
		return err
	case refusal != nil:
		d.refused[order.ID] = true
		return errCrash
	}
	h.rig.volume = fill.Volume.ID
	return nil
}

func volumeOrder(o *bourse.Order) {
	o.Volume = new(bourse.VolumeOrder{Name: "data", SizeGB: 1}.WithDefaults())
}

// dress makes a scenario's order use an image. The first machine also gets every attachment that a machine can have.
func (r *rig) dress(o *bourse.Order) {
	if r == nil || o.Volume != nil {
		return
	}
	if r.pull {
		o.Config.Image = bourse.ImagePull
		return
	}
	o.Config.Image = rigImage
	if r.volume == "" {
		return
	}
	o.Config.Mounts = []bourse.Mount{{Volume: r.volume, Path: "/data"}}
	o.Config.Rootfs = &bourse.Rootfs{SizeGB: 1}
	o.Config.Guest.GPUKind, o.Config.Guest.GPUs = "a10", 1
	r.volume = ""
}

// newImage changes a config to another image, if the rig has one, and to another
// program.
func (r *rig) newImage(c *bourse.Config) {
	env("VERSION", "next")(c)
	if c.ImageKind() == bourse.RegistryImage {
		c.Image = rigNext
	}
}

// image gives an order's machine the named image.
func image(name string) func(*bourse.Order) {
	return func(o *bourse.Order) { o.Config.Image = name }
}

// tasks returns the tasks that run on the host, from all drivers.
func (h *host) tasks() []driver.TaskID {
	out := h.mem.Running()
	if h.rig != nil {
		out = append(out, h.rig.containers.Running()...)
	}
	return out
}

// frozen returns the frozen tasks on the host, from all drivers.
func (h *host) frozen() []driver.TaskID {
	out := h.mem.Frozen()
	if h.rig != nil {
		out = append(out, h.rig.containers.Frozen()...)
	}
	return out
}

// kept returns the machines for which a driver still has data.
func (h *host) kept() []bourse.MachineID {
	out := h.mem.Machines()
	if h.rig != nil {
		out = append(out, h.rig.containers.Machines()...)
	}
	return out
}

// checkRig checks that the host has exactly the attachments that the records of its
// settled machines require.
func (h *host) checkRig(all []bourse.Machine) {
	h.t.Helper()
	if h.rig == nil || h.rig.pull {
		return
	}
	var attached, mounted, scratch []string
	devices := map[string]bourse.MachineID{}
	for _, m := range all {
		if m.State == bourse.StateStarted || m.State == bourse.StateSuspended {
			attached = append(attached, string(m.ID))
			for _, mount := range m.Config.Mounts {
				mounted = append(mounted, string(mount.Volume))
			}
			if m.Image == nil || !m.PrivateIP.IsValid() {
				h.t.Errorf("machine %s runs with image %v and address %s", m.ID, m.Image, m.PrivateIP)
			}
		}
		if m.State != bourse.StateDestroyed && m.Config.Rootfs != nil && m.Boot.Number > 0 {
			scratch = append(scratch, string(m.ID))
		}
		for _, name := range m.Devices {
			if other := devices[name]; other != "" {
				h.t.Errorf("device %s belongs to both %s and %s", name, other, m.ID)
			}
			devices[name] = m.ID
		}
		if len(m.Devices) > 0 && m.Takes.Of(bourse.GPUResource("a10")) == 0 {
			h.t.Errorf("machine %s is %s but has devices %v", m.ID, m.State, m.Devices)
		}
	}
	for what, c := range map[string][2][]string{
		"networks":      {attached, texts(h.rig.network.attached())},
		"mounts":        {mounted, texts(h.rig.volumes.Mounted())},
		"scratch space": {scratch, texts(h.rig.volumes.Scratches())},
	} {
		slices.Sort(c[0])
		if diff := cmp.Diff(c[0], c[1]); diff != "" {
			h.t.Errorf("%s (-want +got):\n%s\n%s", what, diff, stories(all))
		}
	}
	recorded := map[string]bool{}
	for _, m := range all {
		if m.Image != nil && m.State != bourse.StateDestroyed {
			recorded[m.Image.Digest] = true
		}
	}
	list, err := h.rig.images.List(h.t.Context())
	if err != nil {
		h.t.Error(err)
	}
	for _, image := range list {
		if h.Worker.machines.ImageInUse(image.Ref.Digest) != recorded[image.Ref.Digest] {
			h.t.Errorf("image %s is protected for a machine whose record does not contain it, or is not protected", image.Ref)
		}
	}
}

func texts[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return out
}

func stories(all []bourse.Machine) string {
	var out strings.Builder
	for _, m := range all {
		out.WriteString(string(m.ID) + " is " + string(m.State) + ": " + strings.Join(story(m), " ") + "\n")
	}
	return out.String()
}

// onlyAfterStart returns hooks that make every call except Wait fail with fault's error. A failing start still takes
// effect.
func onlyAfterStart(fault func() error) drivertest.Hooks {
	return drivertest.Hooks{
		Before: func(_ context.Context, c drivertest.Call) error {
			if c.Op == "Start" || c.Op == "Wait" {
				return nil
			}
			return fault()
		},
		After: func(_ context.Context, c drivertest.Call) error {
			if c.Op == "Wait" {
				return nil
			}
			return fault()
		},
	}
}
