package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/plans"
	"github.com/bourse-dev/bourse/machinesapi"
)

// remaining is a machine or volume that remains on the drained worker.
type remaining struct {
	App     bourse.AppName   `json:"app"`
	Machine bourse.MachineID `json:"machine,omitempty"`
	Volume  bourse.VolumeID  `json:"volume,omitempty"`
	Name    string           `json:"name"`
	Why     string           `json:"why"`
}

// drained is the last line that "worker drain --json" prints.
type drained struct {
	Worker bourse.WorkerID `json:"worker"`
	Moved  int             `json:"moved"`
	Left   []remaining     `json:"left"` // machines, and volumes that no machine uses
}

// report prints the outcome. It returns an error if machines remain on the worker.
func (d *drain) report(ctx context.Context) error {
	return d.conclude(d.volumes(ctx))
}

// conclude prints the outcome, including the given volumes that remain on the worker. It
// returns an error if machines remain there.
func (d *drain) conclude(volumes []remaining) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shell.JSON {
		if err := d.shell.PrintLine(drained{d.worker, len(d.moved), append(append([]remaining{}, d.unmovable...), volumes...)}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(d.shell.Out, "%s  cordoned, %s moved, %d left\n", d.worker, cli.Count(len(d.moved), "machine"), len(d.unmovable))
		width, _ := d.shell.Out.Size()
		for _, x := range d.unmovable {
			for _, part := range cli.Wrap(cli.Clean(fmt.Sprintf("  %s  %s  %s", x.App, x.Name, x.Why)), width, 6) {
				fmt.Fprintln(d.shell.Out, part)
			}
		}
		d.printVolumes(volumes)
	}
	if len(d.unmovable) == 0 {
		return nil
	}
	return cli.Hint(bourse.Errorf(bourse.CodeFailedPrecondition, "worker %s still has %s", d.worker, cli.Count(len(d.unmovable), "machine")),
		"bourse machine list --all-apps --worker "+string(d.worker), "bourse worker drain "+string(d.worker)+", to continue", "bourse worker uncordon "+string(d.worker)+", to accept orders again")
}

// volumesLeft selects a worker's volumes, except those that have failed, were destroyed, or
// are being destroyed.
const volumesLeft = `SELECT id, app, name, machine FROM volumes
  WHERE worker = ? AND state NOT IN ('destroying', 'destroyed', 'failed') ORDER BY app, id`

// leaveVolumes records volumes that remain on the worker after the drain has destroyed
// their machines.
func (d *drain) leaveVolumes(app bourse.AppName, ids []bourse.VolumeID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		d.remainingVolumes = append(d.remainingVolumes, remaining{App: app, Volume: id, Why: "no machine uses it"})
	}
}

// volumes returns the volumes that remain on the worker and that no machine uses. A drain
// does not move them. They include volumes of machines that the drain has destroyed. The
// list comes from the view, adjusted for this drain's changes, which the view may not
// contain yet.
func (d *drain) volumes(ctx context.Context) []remaining {
	d.mu.Lock()
	out := slices.Clone(d.remainingVolumes)
	d.mu.Unlock()
	for line, err := range d.shell.Client().Query(ctx, machinesapi.ViewQuery{Statement: volumesLeft, Params: []any{string(d.worker)}}) {
		if err != nil {
			if ctx.Err() == nil {
				d.shell.Note("warning: cannot list the remaining volumes: " + cli.Clean(bourse.MessageOf(err)))
			}
			break
		}
		if line.Row == nil || len(line.Row.Cells) != 4 {
			continue
		}
		var cells [4]string
		for i := range cells {
			cells[i], _ = line.Row.Cells[i].(string) // "" if the cell is NULL
		}
		x := remaining{Volume: bourse.VolumeID(cells[0]), App: bourse.AppName(cells[1]), Name: cells[2], Why: "no machine uses it"}
		known := slices.ContainsFunc(out, func(o remaining) bool { return o.Volume == x.Volume })
		if !known && d.remains(x.Volume, bourse.MachineID(cells[3])) {
			out = append(out, x)
		}
	}
	slices.SortStableFunc(out, func(a, b remaining) int { return cmp.Compare(a.App, b.App) })
	return out
}

// remains reports whether a volume remains on the worker and no machine uses it. machine is
// the volume's last known machine, or "".
func (d *drain) remains(id bourse.VolumeID, machine bourse.MachineID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.gone[id] && (machine == "" || d.moved[machine])
}

// printVolumes lists the remaining volumes, with one line for each app.
func (d *drain) printVolumes(volumes []remaining) {
	for len(volumes) > 0 {
		app, n := volumes[0].App, 0
		var ids []bourse.VolumeID
		for ; n < len(volumes) && volumes[n].App == app; n++ {
			ids = append(ids, volumes[n].Volume)
		}
		width, _ := d.shell.Out.Size()
		for _, part := range cli.Wrap(cli.Clean(fmt.Sprintf("  %s  %s", app, plans.LeftText(app, ids))), width, 6) {
			fmt.Fprintln(d.shell.Out, part)
		}
		volumes = volumes[n:]
	}
}
