package worker

import (
	"fmt"
	"strings"

	"github.com/bourse-dev/bourse"
)

const (
	// unknownImage is how large an image that was never heard of is taken to
	// be: about what images of programs are. A worker that has an image bids
	// better than all who would have to find out.
	unknownImage = 128 << 20
	// resourceImages is what a refusal calls the part of the disk that images
	// take.
	resourceImages = "images"
	// labelRuntime begins the labels that name the runtimes of a driver of
	// images.
	labelRuntime = "runtime."
)

// missing gives how many bytes would have to be pulled to fill an order.
func (w *Worker) missing(o *bourse.Order) int64 {
	image := o.Config.Image
	if !bourse.InRegistry(image) || w.cfg.Images == nil {
		return 0
	}
	n, known := w.cfg.Images.Missing(o.App.Org, image)
	if !known {
		return unknownImage
	}
	return n
}

// offersRuntime tells whether a driver's labels name a runtime, by its short
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

// refuseImage gives the reasons that concern machines with an image, of those
// that no other machine's end would remove.
func (w *Worker) refuseImage(o *bourse.Order) *bourse.Refusal {
	c := &o.Config
	if !bourse.InRegistry(c.Image) {
		return nil
	}
	if _, err := w.driverOf(c.Image); err != nil {
		return &bourse.Refusal{Reason: bourse.RefusedUnavailable, Detail: bourse.MessageOf(err)}
	}
	if err := w.cfg.NoNetwork; err != nil {
		return &bourse.Refusal{Reason: bourse.RefusedUnavailable, Detail: bourse.MessageOf(err)}
	}
	if c.Runtime != "" && !offersRuntime(w.labels.Load().image, c.Runtime) {
		return &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: labelRuntime + c.Runtime,
			Detail: fmt.Sprintf("the worker has no runtime %s", c.Runtime),
		}
	}
	if w.ledger.scratch(c) > 0 && w.cfg.Volumes == nil {
		return &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: labelDiskLimit,
			Detail: "the worker cannot limit a root file system (rootfs.size_gb)",
		}
	}
	if _, err := parseDNS(c); err != nil {
		return &bourse.Refusal{Reason: bourse.RefusedDriver, Detail: bourse.MessageOf(err)}
	}
	if n, known := w.cfg.Images.Missing(o.App.Org, c.Image); known {
		want, have := (n+1<<20-1)>>20, int64(w.cfg.Capacity.ImageBudget())
		if want > have {
			return &bourse.Refusal{
				Reason: bourse.RefusedResource, Resource: resourceImages, Wanted: want, Free: have,
				Detail: fmt.Sprintf("image %s: %d MiB to pull, all images together may take %d MiB", bourse.Quoted(c.Image), want, have),
			}
		}
	}
	return nil
}
