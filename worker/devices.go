package worker

import (
	"maps"
	"strings"

	"github.com/bourse-dev/bourse"
)

// gpus counts the gpus of each kind: those that are stated as a number, and
// those that have names.
func (c *Capacity) gpus() map[string]int64 {
	if len(c.Devices) == 0 {
		return c.GPUs
	}
	out := maps.Clone(c.GPUs)
	if out == nil {
		out = map[string]int64{}
	}
	for kind, names := range c.Devices {
		out[kind] = int64(len(names))
	}
	return out
}

// validateDevices reports CodeInvalid for a device that is named twice, is no
// qualified CDI name (vendor.com/class=name), or whose kind has a number too
// that is not that of its names.
func (c *Capacity) validateDevices() error {
	seen := map[string]bool{}
	for kind, names := range c.Devices {
		if n, both := c.GPUs[kind]; both && n != int64(len(names)) {
			return bourse.Errorf(bourse.CodeInvalid, "%d gpus of kind %s have %d devices", n, kind, len(names))
		}
		for _, name := range names {
			class, device, ok := strings.Cut(name, "=")
			if vendor, _, slash := strings.Cut(class, "/"); !ok || !slash || vendor == "" || device == "" {
				return bourse.Errorf(bourse.CodeInvalid, "device %s: use a name such as nvidia.com/gpu=0", bourse.Quoted(name))
			}
			if seen[name] {
				return bourse.Errorf(bourse.CodeInvalid, "device %s is stated twice", bourse.Quoted(name))
			}
			seen[name] = true
		}
	}
	return nil
}
