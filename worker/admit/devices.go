package admit

import (
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// TakeDevices chooses as many devices of m's kind of gpu as it wants, none of
// which another machine has. A kind whose devices have no names is only counted.
func (h *Host) TakeDevices(tx *store.Tx, m *bourse.Machine) error {
	m.Devices = nil
	all := h.Devices[m.Config.Guest.GPUKind]
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
