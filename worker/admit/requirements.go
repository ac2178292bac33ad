package admit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

const (
	// UnknownImage is the assumed size, in bytes, of an image that the worker has never seen. It is about the size of a
	// small program's image. Because it is not 0, workers that already have the image rank above all others.
	UnknownImage = 128 << 20
	// ResourceImages is the resource that a refusal reports if there is too little disk space for
	// images.
	ResourceImages = "images"
	// ResourcePollers is the resource that a refusal reports if no poller can run the machine.
	ResourcePollers = "pollers"
)

// Unsupported returns a refusal if the worker could not run a machine with this config even if it were idle, and nil
// otherwise.
func (h *Host) Unsupported(org string, c *bourse.Config) *bourse.Refusal {
	r := h.image(org, c)
	if r == nil {
		r = h.labels(c.Requirements, h.Labels.Load().ByKind[c.ImageKind()])
	}
	return h.FromThisWorker(r)
}

// UnsupportedTask is like Unsupported, but for the order of a warm task. It checks only the region and the required
// labels, because the task runs on an existing machine.
func (h *Host) UnsupportedTask(order *bourse.Order) *bourse.Refusal {
	r := h.region(order)
	if r == nil {
		r = h.labels(order.Config.Requirements, h.Labels.Load().All)
	}
	return h.FromThisWorker(r)
}

// supports refuses an order that the worker could not fill even if it were idle.
func (h *Host) supports(order *bourse.Order) *bourse.Refusal {
	c := &order.Config
	if r := h.region(order); r != nil {
		return r
	}
	switch kind := order.Kind(); {
	case kind == bourse.KindVolume:
		if r := h.supportsVolume(order.Volume.WithDefaults()); r != nil {
			return r
		}
		if c.Image == "" {
			break
		}
		if r := h.image(order.App.Org, c); r != nil { // the machine that will mount the volume must also run here
			return r
		}
	case kind == bourse.KindHold && c.Image == "": // a hold whose config has no image
	default:
		return h.Unsupported(order.App.Org, c)
	}
	return h.labels(c.Requirements, h.Labels.Load().All)
}

// region refuses an order for another region.
func (h *Host) region(order *bourse.Order) *bourse.Refusal {
	if slices.ContainsFunc(order.Regions, func(choice bourse.Choice) bool { return slices.Contains(choice, h.Region) }) {
		return nil
	}
	return &bourse.Refusal{Reason: bourse.RefusedRegion, Detail: fmt.Sprintf("the worker is in %s", h.Region)}
}

// labels refuses an order if a label that it requires is missing from available, or has a different value there.
func (h *Host) labels(requirements bourse.Requirements, available map[string]string) *bourse.Refusal {
	for name, wanted := range requirements {
		label, known := available[name]
		if name == bourse.LabelWorker {
			label, known = string(h.Worker), true
		}
		switch {
		case wanted.Count != 0: // a countable, which the ledger checks
		case !known:
			return &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: name, Detail: fmt.Sprintf("the worker has no label %s", name)}
		case label != wanted.Label:
			return &bourse.Refusal{
				Reason: bourse.RefusedLabel, Resource: name,
				Detail: fmt.Sprintf("label %s is %s here, wanted %s", name, bourse.Quoted(label), bourse.Quoted(wanted.Label)),
			}
		}
	}
	return nil
}

// image refuses a config if none of the worker's drivers can run its image.
func (h *Host) image(org string, c *bourse.Config) *bourse.Refusal {
	kind := c.ImageKind()
	if !slices.Contains(h.Drivers, string(kind)) {
		return &bourse.Refusal{
			Reason: bourse.RefusedImage, Resource: c.Image,
			Detail: fmt.Sprintf("no driver here runs image %s (drivers: %v)", bourse.Quoted(c.Image), h.Drivers),
		}
	}
	if kind == bourse.RegistryImage {
		return h.registryImage(org, c)
	}
	return nil
}

// registryImage refuses a config with an image from a registry if the worker cannot run the image as configured.
func (h *Host) registryImage(org string, c *bourse.Config) *bourse.Refusal {
	for _, err := range []error{h.Containers(), h.NoNetwork} {
		if err != nil {
			return &bourse.Refusal{Reason: bourse.RefusedUnavailable, Detail: bourse.MessageOf(err)}
		}
	}
	if c.Runtime != "" && !offersRuntime(h.Labels.Load().ByKind[bourse.RegistryImage], c.Runtime) {
		return &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: labelRuntime + c.Runtime,
			Detail: fmt.Sprintf("the worker has no runtime %s", c.Runtime),
		}
	}
	if r := h.refuseVM(c); r != nil {
		return r
	}
	if h.Ledger.Scratch(c) > 0 && !h.Scratch {
		return &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: LabelDiskLimit,
			Detail: "the worker cannot limit a root file system (rootfs.size_gb)",
		}
	}
	if n, known := h.Images.Missing(org, c.Image); known {
		wanted, budget := (n+1<<20-1)>>20, int64(h.ImageBudget)
		if wanted > budget {
			return &bourse.Refusal{
				Reason: bourse.RefusedResource, Resource: ResourceImages, Wanted: wanted, Free: budget,
				Detail: fmt.Sprintf("image %s: %d MiB to pull, all images together may take %d MiB", bourse.Quoted(c.Image), wanted, budget),
			}
		}
	}
	return nil
}

// RunsVM reports whether the worker would run a machine with this config as a virtual machine.
func (h *Host) RunsVM(c *bourse.Config) bool {
	if c.ImageKind() != bourse.RegistryImage || c.Runtime != "" {
		return c.Runtime == bourse.RuntimeVM
	}
	return h.Labels.Load().ByKind[bourse.RegistryImage][driver.LabelDefaultRuntime] == bourse.RuntimeVM
}

// refuseVM returns a refusal if a machine with this config would have to be a virtual machine and the worker cannot run
// that virtual machine. Otherwise, it returns nil.
func (h *Host) refuseVM(c *bourse.Config) *bourse.Refusal {
	if !h.RunsVM(c) {
		return nil
	}
	labels := h.Labels.Load().ByKind[bourse.RegistryImage]
	r := &bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: driver.LabelVM}
	switch {
	case labels[driver.LabelVM] == "":
		r.Detail = "the worker runs images in virtual machines, but its host lacks the programs or devices that they need"
	case !h.Private[bourse.RegistryImage]:
		r.Detail = "virtual machines need private networks, which the worker does not provide"
	case c.Guest.GPUs > 0:
		r.Detail = "the worker runs images in virtual machines, which do not support GPUs"
	case c.ExtendsVolumes():
		r.Detail = "the worker runs images in virtual machines, whose volumes cannot be extended automatically (extend_threshold_percent)"
	case c.Guest.MemoryMB < bourse.MinVMMemory:
		r.Detail = fmt.Sprintf("the worker runs images in virtual machines, which need at least %d MiB of memory", bourse.MinVMMemory)
	case labels[driver.LabelVM] == driver.Emulated && !c.AllowEmulation && labels[driver.LabelVMEmulation] == "":
		r.Detail = "the worker has no KVM, so it would emulate the virtual machine, which is about ten times as slow; --allow-emulation allows that"
	default:
		return nil
	}
	return r
}

// offersRuntime reports whether a driver's labels list a runtime. name may be the runtime's short name or its
// containerd name.
func offersRuntime(labels map[string]string, name string) bool {
	if _, short := labels[labelRuntime+name]; short {
		return true
	}
	for label, long := range labels {
		if long == name && strings.HasPrefix(label, labelRuntime) {
			return true
		}
	}
	return false
}

// missing returns how many bytes the worker would have to pull to fill an order, or UnknownImage if the image's size is
// unknown.
func (h *Host) missing(o *bourse.Order) int64 {
	if o.Config.ImageKind() != bourse.RegistryImage || h.Images == nil {
		return 0
	}
	n, known := h.Images.Missing(o.App.Org, o.Config.Image)
	if !known {
		return UnknownImage
	}
	return n
}
