package worker

import (
	"maps"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var (
	errNoPull       = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without pollers")
	errNoContainers = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without a driver of images")
	// errLate passes by itself: see recoverLate.
	errLate = bourse.Errorf(bourse.CodeUnavailable, "the worker waits for its driver of images")
)

// driverOf gives the driver that runs an image. CodeUnavailable when the
// worker has none, and before it has recovered.
func (w *Worker) driverOf(image string) (driver.Driver, error) {
	switch {
	case image == bourse.ImageHost:
		return w.cfg.Driver, nil
	case image == bourse.ImagePull:
		if w.cfg.Pull == nil {
			return nil, errNoPull
		}
		return w.cfg.Pull, nil
	case w.cfg.Container == nil:
		return nil, errNoContainers
	}
	select {
	case <-w.contained:
		return w.cfg.Container, nil
	default:
		return nil, errLate
	}
}

// drivers names the drivers that this worker has.
func (w *Worker) drivers() []string {
	names := []string{}
	if w.cfg.Container != nil {
		names = append(names, "container")
	}
	if !w.cfg.NoHost {
		names = append(names, "process")
	}
	if w.cfg.Pull != nil {
		names = append(names, "pull")
	}
	return names
}

// runs tells whether a driver of this worker runs the image.
func (w *Worker) runs(image string) bool {
	switch image {
	case bourse.ImageHost:
		return !w.cfg.NoHost
	case bourse.ImagePull:
		return w.cfg.Pull != nil
	}
	return w.cfg.Container != nil
}

// labels are a worker's facts: what its machines may rely on differs by the
// driver that runs them.
type labels struct {
	host, image map[string]string // of machines of image host, and of images of a registry
	pull        map[string]string // of machines of image pull
	all         map[string]string // as others see them; host's where they differ
}

// of gives the labels that a machine with this image may rely on.
func (l *labels) of(image string) map[string]string {
	switch image {
	case bourse.ImageHost:
		return l.host
	case bourse.ImagePull:
		return l.pull
	}
	return l.image
}

// learnLabels gathers the worker's facts: those of its parts, its drivers' and
// the operator's; the later ones win. A driver knows its own once it has
// recovered.
func (w *Worker) learnLabels() {
	shared := map[string]string{}
	if w.cfg.Network != nil {
		maps.Copy(shared, w.cfg.Network.Labels())
	}
	if w.cfg.Volumes != nil {
		maps.Copy(shared, w.cfg.Volumes.Labels())
	}
	with := func(sets ...map[string]string) map[string]string {
		out := maps.Clone(shared)
		for _, set := range append(sets, w.cfg.Capacity.Labels) {
			maps.Copy(out, set)
		}
		return out
	}
	host := w.cfg.Driver.Labels()
	if w.cfg.NoHost {
		host = nil
	}
	l := labels{host: with(host), image: with(), pull: maps.Clone(w.cfg.Capacity.Labels), all: with(host)}
	if w.cfg.Container != nil {
		l.image = with(w.cfg.Container.Labels())
		if w.cfg.Volumes != nil {
			l.image[labelDiskLimit] = "loop"
		}
		l.all = with(l.image, host)
	}
	w.labels.Store(&l)
}

// labelDiskLimit says how a limit on a root file system is enforced.
const labelDiskLimit = "limit.disk"
