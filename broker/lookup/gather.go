package lookup

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Gathered is the result of a search for machines.
type Gathered struct {
	Machines []*inventory.Listed // oldest first
	Asked    int                 // number of workers asked in addition to the view
	Missing  []bourse.WorkerID   // workers that did not answer
	Overflow error               // error of a worker whose machines do not fit into one reply
}

// Gather lists the machines of an app, or of all apps if app is nil. If deleted is set, it includes destroyed machines.
// It reads the view. It also asks the workers if the view is out of sync or does not contain the app, or if deleted is
// set (the view contains no destroyed machines). If region is set, it asks only that region's workers.
func (k *Machines) Gather(ctx context.Context, app *bourse.App, deleted bool, region bourse.Region) Gathered {
	query := fabric.MachinesQuery{Deleted: deleted}
	if app != nil {
		query.App, query.AppID = app.Name, app.ID
	}
	known := k.fresh.of(query.App) // must happen before the view is read; see fresh.of
	rows, err := k.View.Machines(ctx, inventory.Filter{App: query.App})
	if err != nil {
		k.viewFailed(ctx, err)
	}
	var members []bourse.Member
	if query.Deleted || err != nil || !k.View.InSync() || (len(rows) == 0 && !k.recorded(ctx, query.App)) {
		members = k.Directory.Workers()
		if region != "" { // a machine is always in its worker's region
			members = slices.DeleteFunc(members, func(m bourse.Member) bool { return m.Region != region })
		}
	}
	u := machineUnion{replies: known, rows: make([]*inventory.Listed, 0, len(rows)), answers: k.askMachines(ctx, members, query)}
	for i := range rows {
		if row := &rows[i]; k.isOwnersRow(row) {
			u.rows = append(u.rows, row)
			k.fresh.sawInView(row.ID, row.UpdatedAt)
		}
	}
	return Gathered{Machines: u.machines(app, deleted), Asked: len(members), Missing: Unresponsive(u.answers), Overflow: overflow(u.answers)}
}

// Add adds the result for another app to g.
func (g *Gathered) Add(other Gathered) {
	g.Machines = append(g.Machines, other.Machines...)
	slices.SortFunc(g.Machines, func(x, y *inventory.Listed) int { return oldestFirst(&x.Machine, &y.Machine) })
	g.Asked = max(g.Asked, other.Asked) // the same workers were asked for each app
	for _, w := range other.Missing {
		if !slices.Contains(g.Missing, w) {
			g.Missing = append(g.Missing, w)
		}
	}
	g.Overflow = cmp.Or(g.Overflow, other.Overflow)
}

// overflow returns the error of a worker whose machines did not fit into one reply. Ignoring the error would make the
// list look complete even though that worker's machines are missing.
func overflow(answers []Answer[[]bourse.Machine]) error {
	for _, a := range answers {
		if errors.Is(a.Err, fabric.ErrOverflow) || a.Err != nil && bourse.CodeOf(a.Err) == bourse.CodeInvalid {
			return a.Err
		}
	}
	return nil
}

// machineUnion merges machine data from several sources.
type machineUnion struct {
	replies map[bourse.MachineID]bourse.Machine // recent replies from the machines' workers
	rows    []*inventory.Listed                 // rows of the view
	answers []Answer[[]bourse.Machine]          // answers from workers that have just been asked
}

// machines merges the sources. A worker's answer is complete, so it replaces the view's rows and the recent
// replies about the worker's machines. For workers that did not answer or were not asked, the result contains
// the view's rows, updated with recent replies. A worker that was asked but did not answer is reported as
// unreachable, regardless of the view.
func (u *machineUnion) machines(app *bourse.App, deleted bool) []*inventory.Listed {
	byID := make(map[bourse.MachineID]*inventory.Listed, len(u.rows)+len(u.replies))
	heard := make(map[bourse.WorkerID]bool, len(u.answers)) // false: the worker was asked, but did not answer
	for _, a := range u.answers {
		heard[a.From.ID] = a.Err == nil
		for i := range a.Got {
			byID[a.Got[i].ID] = &inventory.Listed{Machine: a.Got[i], HostStatus: machinesapi.HostOK, Complete: true}
		}
	}
	old := func(l *inventory.Listed) {
		answered, asked := heard[l.Worker]
		if answered {
			return
		}
		if asked {
			l.HostStatus = machinesapi.HostUnreachable
		}
		if known, ok := byID[l.ID]; ok {
			newer := newer(*known, &l.Machine) // newer copies the row, which must not be modified
			byID[l.ID] = &newer
			return
		}
		byID[l.ID] = l
	}
	for _, l := range u.rows {
		old(l)
	}
	for _, m := range u.replies {
		old(&inventory.Listed{Machine: m, HostStatus: machinesapi.HostOK, Complete: true})
	}
	out := make([]*inventory.Listed, 0, len(byID))
	for _, l := range byID {
		if (app == nil || l.OwnedBy(app)) && (deleted || l.State != bourse.StateDestroyed) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(x, y *inventory.Listed) int { return oldestFirst(&x.Machine, &y.Machine) })
	return out
}

func oldestFirst(x, y *bourse.Machine) int {
	return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), strings.Compare(string(x.ID), string(y.ID)))
}

// askMachines asks the workers for their machines in parallel.
func (k *Machines) askMachines(ctx context.Context, members []bourse.Member, query fabric.MachinesQuery) []Answer[[]bourse.Machine] {
	return Ask(ctx, k.Timeout, members, Asking(k.Workers, &fabric.MachineList, query))
}

// Find asks workers for an app's machines, for callers that cannot rely on the view. It returns the machines, oldest
// first, and the workers that did not answer.
func (k *Machines) Find(ctx context.Context, workers []bourse.Member, app *bourse.App, query fabric.MachinesQuery) ([]bourse.Machine, []bourse.WorkerID) {
	query.App, query.AppID = app.Name, app.ID
	answers := k.askMachines(ctx, workers, query)
	var out []bourse.Machine
	for _, a := range answers {
		for i := range a.Got {
			if a.Got[i].OwnedBy(app) {
				out = append(out, a.Got[i])
			}
		}
	}
	slices.SortFunc(out, func(x, y bourse.Machine) int { return oldestFirst(&x, &y) })
	return out, Unresponsive(answers)
}

// Counts contains the number of machines of each app.
type Counts map[bourse.AppRef]int

// Of returns the number of machines that an app has.
func (c Counts) Of(app *bourse.App) int {
	return c[app.Ref()] + c[bourse.AppRef{Name: app.Name}] // machines without an app ID also belong to the app
}

// Count returns the number of machines of an app, or of each app if app is nil. It also returns
// the workers whose answers were needed but did not arrive.
func (k *Machines) Count(ctx context.Context, app *bourse.App) (Counts, []bourse.WorkerID) {
	name := bourse.AppName("")
	if app != nil {
		name = app.Name
	}
	known := k.fresh.of(name) // must happen before the view is read; see fresh.of
	counts, err := k.View.CountMachines(ctx)
	if err != nil {
		k.viewFailed(ctx, err)
	}
	if app != nil {
		maps.DeleteFunc(counts, func(ref bourse.AppRef, _ int) bool { return ref.Name != name })
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	if err == nil && k.View.InSync() && (total > 0 || k.recorded(ctx, name)) {
		return k.correct(ctx, counts, known), nil
	}
	found := k.Gather(ctx, app, false, "")
	counts = map[bourse.AppRef]int{}
	for _, l := range found.Machines {
		counts[bourse.AppRef{Name: l.App, ID: l.AppID}]++
	}
	return counts, found.Missing
}

// correct updates the view's counts with recent replies from the machines' workers.
func (k *Machines) correct(ctx context.Context, counts Counts, known map[bourse.MachineID]bourse.Machine) Counts {
	out := Counts{}
	maps.Copy(out, counts)
	for id, m := range known {
		row, counted := k.fromView(ctx, id)
		if counted {
			k.fresh.sawInView(id, row.UpdatedAt)
		}
		switch gone := m.State == bourse.StateDestroyed; {
		case gone && counted:
			out[bourse.AppRef{Name: m.App, ID: m.AppID}]--
		case !gone && !counted:
			out[bourse.AppRef{Name: m.App, ID: m.AppID}]++
		}
	}
	return out
}
