package machines

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var (
	errNoPull = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without pollers")
	// errLate passes by itself: see RecoverLate.
	errLate = bourse.Errorf(bourse.CodeUnavailable, "the worker waits for its driver of images")
)

// drivers run the images of a worker, each a kind of them.
type drivers struct {
	all  map[bourse.ImageKind]driver.Driver // fixed
	late chan struct{}                      // closed when the driver of a registry's images has recovered
}

// of returns the driver that runs a kind of images. CodeUnavailable when the
// worker has none, and before it has recovered.
func (d *drivers) of(kind bourse.ImageKind) (driver.Driver, error) {
	run, ok := d.all[kind]
	switch kind {
	case bourse.HostImage:
	case bourse.PollerImage:
		if !ok {
			return nil, errNoPull
		}
	case bourse.RegistryImage:
		if !ok {
			return nil, ErrNoImages
		}
		select {
		case <-d.late:
		default:
			return nil, errLate
		}
	}
	return run, nil
}

// Containers returns why the driver of a registry's images runs nothing now, nil
// when it does.
func (ms *Machines) Containers() error {
	_, err := ms.ops.drivers.of(bourse.RegistryImage)
	return err
}
