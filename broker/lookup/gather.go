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

// Gathered is what could be found out of some machines.
type Gathered struct {
	Machines []*inventory.Listed // oldest first
	Asked    int                 // workers, beside the view
	Missing  []bourse.WorkerID   // that did not answer
	Overflow error               // of a worker that has more than a reply holds
}

// Gather lists the machines of an app, destroyed ones too if that is asked, or
// the living ones of all for nil: from the view, and from the workers too as
// long as the view is not synced, when it does not know the app, and when
// destroyed ones are asked for, which it does not have. A region says which
// workers need not be asked.
func (k *Machines) Gather(ctx context.Context, app *bourse.App, deleted bool, region bourse.Region) Gathered {
	query := fabric.MachinesQuery{Deleted: deleted}
	if app != nil {
		query.App, query.AppID = app.Name, app.ID
	}
	known := k.fresh.of(query.App) // before the view: see there
	rows, err := k.View.Machines(ctx, inventory.Filter{App: query.App})
	if err != nil {
		k.viewFailed(ctx, err)
	}
	var members []bourse.Member
	if query.Deleted || err != nil || !k.View.InSync() || (len(rows) == 0 && !k.recorded(ctx, query.App)) {
		members = k.Directory.Workers()
		if region != "" { // a machine is where its worker is
			members = slices.DeleteFunc(members, func(m bourse.Member) bool { return m.Region != region })
		}
	}
	u := union{told: known, rows: make([]*inventory.Listed, 0, len(rows)), answers: k.askMachines(ctx, members, query)}
	for i := range rows {
		if row := &rows[i]; k.mayTell(row) {
			u.rows = append(u.rows, row)
			k.fresh.saw(row.ID, row.UpdatedAt)
		}
	}
	return Gathered{Machines: u.machines(app, deleted), Asked: len(members), Missing: Silent(u.answers), Overflow: overflow(u.answers)}
}

// Add adds what was found out of the machines of another app.
func (g *Gathered) Add(other Gathered) {
	g.Machines = append(g.Machines, other.Machines...)
	slices.SortFunc(g.Machines, func(x, y *inventory.Listed) int { return oldestFirst(&x.Machine, &y.Machine) })
	g.Asked = max(g.Asked, other.Asked) // the same ones
	for _, w := range other.Missing {
		if !slices.Contains(g.Missing, w) {
			g.Missing = append(g.Missing, w)
		}
	}
	g.Overflow = cmp.Or(g.Overflow, other.Overflow)
}

// overflow returns the error of an answer that was too long to be whole: what the
// others said would be taken for all there is.
func overflow(answers []Answer[[]bourse.Machine]) error {
	for _, a := range answers {
		if errors.Is(a.Err, fabric.ErrOverflow) || a.Err != nil && bourse.CodeOf(a.Err) == bourse.CodeInvalid {
			return a.Err
		}
	}
	return nil
}

// union is what there is to be put together of machines.
type union struct {
	told    map[bourse.MachineID]bourse.Machine // by owners, lately
	rows    []*inventory.Listed                 // of the view
	answers []Answer[[]bourse.Machine]          // of workers that were asked just now
}

// machines puts the parts together: of a worker that answered, its answer is
// all there is; of the others, what the view has, brought up to what they replied
// lately. A worker that did not answer is unreachable, whatever the view says.
func (u *union) machines(app *bourse.App, deleted bool) []*inventory.Listed {
	byID := make(map[bourse.MachineID]*inventory.Listed, len(u.rows)+len(u.told))
	heard := make(map[bourse.WorkerID]bool, len(u.answers)) // false: was asked in vain
	for _, a := range u.answers {
		heard[a.From.ID] = a.Err == nil
		for i := range a.Got {
			byID[a.Got[i].ID] = &inventory.Listed{Machine: a.Got[i], HostStatus: machinesapi.HostOK, Whole: true}
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
			newer := newer(*known, &l.Machine) // a new one: the row is to stay as it was read
			byID[l.ID] = &newer
			return
		}
		byID[l.ID] = l
	}
	for _, l := range u.rows {
		old(l)
	}
	for _, m := range u.told {
		old(&inventory.Listed{Machine: m, HostStatus: machinesapi.HostOK, Whole: true})
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

// askMachines asks members side by side.
func (k *Machines) askMachines(ctx context.Context, members []bourse.Member, query fabric.MachinesQuery) []Answer[[]bourse.Machine] {
	return Ask(ctx, k.Patience, members, Asking(k.Workers, &fabric.MachineList, query))
}

// Find asks workers, whose word counts where the view's does not,
// and returns what they have of an app, oldest first, and who did not answer.
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
	return out, Silent(answers)
}

// Counts is how many living machines each app has.
type Counts map[bourse.AppRef]int

// Of returns the number of an app.
func (c Counts) Of(app *bourse.App) int {
	return c[app.Ref()] + c[bourse.AppRef{Name: app.Name}] // those without an id are of a former release
}

// Count counts the living machines of one app, of all for nil, and says
// which workers that were needed for it did not answer.
func (k *Machines) Count(ctx context.Context, app *bourse.App) (Counts, []bourse.WorkerID) {
	name := bourse.AppName("")
	if app != nil {
		name = app.Name
	}
	known := k.fresh.of(name) // before the view: see there
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

// correct brings the view's counts up to what owners replied lately.
func (k *Machines) correct(ctx context.Context, counts Counts, known map[bourse.MachineID]bourse.Machine) Counts {
	out := Counts{}
	maps.Copy(out, counts)
	for id, m := range known {
		row, counted := k.viewed(ctx, id)
		if counted {
			k.fresh.saw(id, row.UpdatedAt)
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
