package process

import (
	"cmp"
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var _ driver.Finder = (*Driver)(nil)

// Found implements driver.Finder. It looks for processes with the directory's mark, regardless
// of their parents. The mark is derived from the directory's path, so the directory and the
// files in it need not exist.
func (d *Driver) Found(context.Context) ([]driver.TaskID, error) {
	l, err := newLayout(d.cfg.Dir)
	if err != nil {
		return nil, err
	}
	latest := map[bourse.MachineID]int{}
	for id := range markedTasks(l.mark()) {
		latest[id.Machine] = max(latest[id.Machine], id.Boot)
	}
	out := make([]driver.TaskID, 0, len(latest))
	for m, boot := range latest {
		out = append(out, driver.TaskID{Machine: m, Boot: boot})
	}
	slices.SortFunc(out, func(a, b driver.TaskID) int { return cmp.Compare(a.Machine, b.Machine) })
	return out, nil
}
