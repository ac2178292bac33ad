package admit

import (
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
)

const (
	// UnknownImage is how large an image that was never seen is taken to be:
	// about what images of programs are. A worker that has an image bids better
	// than all that would have to find out.
	UnknownImage = 128 << 20
	// ResourceImages is what a refusal calls the part of the disk that images
	// take.
	ResourceImages = "images"
)

// missing returns how many bytes would have to be pulled to fill an order.
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

// offersRuntime reports whether a driver's labels name a runtime, by its short
// name or by containerd's.
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

// image returns the reasons that concern machines with a registry's image, of
// those that no other machine's end would remove.
func (h *Host) image(o *bourse.Order) *bourse.Refusal {
	c := &o.Config
	for _, err := range []error{h.Containers(), h.NoNetwork} {
		if err != nil {
			return &bourse.Refusal{Reason: bourse.RefusedUnavailable, Detail: bourse.MessageOf(err)}
		}
	}
	if c.Runtime != "" && !offersRuntime(h.Labels.Load().Of[bourse.RegistryImage], c.Runtime) {
		return &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: labelRuntime + c.Runtime,
			Detail: fmt.Sprintf("the worker has no runtime %s", c.Runtime),
		}
	}
	if h.Ledger.Scratch(c) > 0 && !h.Scratch {
		return &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: LabelDiskLimit,
			Detail: "the worker cannot limit a root file system (rootfs.size_gb)",
		}
	}
	if n, known := h.Images.Missing(o.App.Org, c.Image); known {
		want, have := (n+1<<20-1)>>20, int64(h.ImageBudget)
		if want > have {
			return &bourse.Refusal{
				Reason: bourse.RefusedResource, Resource: ResourceImages, Wanted: want, Free: have,
				Detail: fmt.Sprintf("image %s: %d MiB to pull, all images together may take %d MiB", bourse.Quoted(c.Image), want, have),
			}
		}
	}
	return nil
}
