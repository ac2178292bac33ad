package worker

import (
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
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

// takeDevices gives m as many devices of its kind of gpu as it wants, none of
// which another machine has, in the transaction that takes them from the
// ledger. A kind whose devices have no names is only counted.
func (w *Worker) takeDevices(tx *store.Tx, m *bourse.Machine) error {
	m.Devices = nil
	all := w.cfg.Capacity.Devices[m.Config.Guest.GPUKind]
	if m.Config.Guest.GPUs == 0 || len(all) == 0 {
		return nil
	}
	taken := map[string]bool{}
	for other, err := range tx.Machines() {
		if err != nil {
			return err
		}
		if other.ID == m.ID {
			continue
		}
		for _, name := range other.Devices {
			taken[name] = true
		}
	}
	free := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return taken[name] })
	if int64(len(free)) < m.Config.Guest.GPUs { // the ledger counts the same, unless the operator has changed the names
		return bourse.Errorf(bourse.CodeInsufficient, "insufficient gpus: %d of kind %s are free, of %d wanted",
			len(free), m.Config.Guest.GPUKind, m.Config.Guest.GPUs)
	}
	m.Devices = free[:m.Config.Guest.GPUs]
	return nil
}
