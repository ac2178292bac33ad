package broker

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
)

// gathered is what could be found out of some machines.
type gathered struct {
	machines []*Listed         // oldest first
	asked    int               // workers, beside the view
	missing  []bourse.WorkerID // that did not answer
	overflow error             // of a worker that has more to say than a reply holds
}

// gather lists the machines of an app, destroyed ones too if that is asked, or
// the living ones of all for nil: from the view, and from the workers too as
// long as the view is not synced, when it does not know the app, and when
// destroyed ones are asked for, which it does not have. A region says which
// workers need not be asked.
func (b *Broker) gather(ctx context.Context, app *bourse.App, deleted bool, region bourse.Region) gathered {
	query := fabric.MachinesQuery{Deleted: deleted}
	if app != nil {
		query.App, query.AppID = app.Name, app.ID
	}
	known := b.fresh.of(query.App) // before the view: see there
	rows, err := b.View.Machines(ctx, query.App)
	if err != nil {
		b.viewFailed(ctx, err)
	}
	var members []bourse.Member
	if query.Deleted || err != nil || !b.View.Synced() || (len(rows) == 0 && !b.apps.recorded(ctx, query.App)) {
		members = b.Directory.Workers()
		if region != "" { // a machine stands where its worker does
			members = slices.DeleteFunc(members, func(m bourse.Member) bool { return m.Region != region })
		}
	}
	u := union{told: known, rows: make([]*Listed, 0, len(rows)), answers: b.askMachines(ctx, members, query)}
	for i := range rows {
		if row := &rows[i]; b.mayTell(row) {
			u.rows = append(u.rows, row)
			b.fresh.saw(row.ID, row.UpdatedAt)
		}
	}
	return gathered{machines: u.machines(app, deleted), asked: len(members), missing: silent(u.answers), overflow: overflow(u.answers)}
}

// overflow returns the error of an answer that was too long to be whole: what the
// others said would be taken for all there is.
func overflow(answers []answer[[]bourse.Machine]) error {
	for _, a := range answers {
		if errors.Is(a.err, fabric.ErrOverflow) || a.err != nil && bourse.CodeOf(a.err) == bourse.CodeInvalid {
			return a.err
		}
	}
	return nil
}

// union is what there is to be put together of machines.
type union struct {
	told    map[bourse.MachineID]bourse.Machine // by owners, lately
	rows    []*Listed                           // of the view
	answers []answer[[]bourse.Machine]          // of workers that were asked just now
}

// machines puts the parts together: of a worker that answered, its answer is
// all there is; of the others, what the view has, brought up to what they told
// lately. A worker that did not answer is unreachable, whatever the view says.
func (u *union) machines(app *bourse.App, deleted bool) []*Listed {
	byID := make(map[bourse.MachineID]*Listed, len(u.rows)+len(u.told))
	heard := make(map[bourse.WorkerID]bool, len(u.answers)) // false: was asked in vain
	for _, a := range u.answers {
		heard[a.from.ID] = a.err == nil
		for i := range a.got {
			byID[a.got[i].ID] = &Listed{Machine: a.got[i], HostStatus: machinesapi.HostOK}
		}
	}
	old := func(l *Listed) {
		answered, asked := heard[l.Worker]
		if answered {
			return
		}
		if asked {
			l.HostStatus = machinesapi.HostUnreachable
		}
		if known, ok := byID[l.ID]; ok {
			newer := known.newer(&l.Machine) // a new one: the row is to stay as it was read
			byID[l.ID] = &newer
			return
		}
		byID[l.ID] = l
	}
	for _, l := range u.rows {
		old(l)
	}
	for _, m := range u.told {
		old(&Listed{Machine: m, HostStatus: machinesapi.HostOK})
	}
	out := make([]*Listed, 0, len(byID))
	for _, l := range byID {
		if (app == nil || l.OwnedBy(app)) && (deleted || l.State != bourse.StateDestroyed) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(x, y *Listed) int { return oldestFirst(&x.Machine, &y.Machine) })
	return out
}

func oldestFirst(x, y *bourse.Machine) int {
	return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), strings.Compare(string(x.ID), string(y.ID)))
}

// askMachines asks members side by side.
func (b *Broker) askMachines(ctx context.Context, members []bourse.Member, query fabric.MachinesQuery) []answer[[]bourse.Machine] {
	return ask(ctx, b.Patience, members, func(ctx context.Context, to bourse.Member) ([]bourse.Machine, error) {
		return b.Workers.Machines(ctx, to, query)
	})
}

// findMachines asks all workers, whose word counts where the view's does not,
// and gives what they have of an app, oldest first, and who did not answer.
func (b *Broker) findMachines(ctx context.Context, app *bourse.App, query fabric.MachinesQuery) ([]bourse.Machine, []bourse.WorkerID) {
	query.App, query.AppID = app.Name, app.ID
	answers := b.askMachines(ctx, b.Directory.Workers(), query)
	var out []bourse.Machine
	for _, a := range answers {
		for i := range a.got {
			if a.got[i].OwnedBy(app) {
				out = append(out, a.got[i])
			}
		}
	}
	slices.SortFunc(out, func(x, y bourse.Machine) int { return oldestFirst(&x, &y) })
	return out, silent(answers)
}

// machineCounts is how many living machines each app has.
type machineCounts map[bourse.AppRef]int

// of gives the number of an app.
func (c machineCounts) of(app *bourse.App) int {
	return c[app.Ref()] + c[bourse.AppRef{Name: app.Name}] // those without an id are of a former release
}

// countMachines counts the living machines of one app, of all for nil, and says
// which workers that were needed for it did not answer.
func (b *Broker) countMachines(ctx context.Context, app *bourse.App) (machineCounts, []bourse.WorkerID) {
	name := bourse.AppName("")
	if app != nil {
		name = app.Name
	}
	known := b.fresh.of(name) // before the view: see there
	counts, err := b.View.CountMachines(ctx, name)
	if err != nil {
		b.viewFailed(ctx, err)
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	if err == nil && b.View.Synced() && (total > 0 || b.apps.recorded(ctx, name)) {
		return b.correct(ctx, counts, known), nil
	}
	found := b.gather(ctx, app, false, "")
	counts = map[bourse.AppRef]int{}
	for _, l := range found.machines {
		counts[bourse.AppRef{Name: l.App, ID: l.AppID}]++
	}
	return counts, found.missing
}

// correct brings the view's counts up to what owners told lately.
func (b *Broker) correct(ctx context.Context, counts machineCounts, known map[bourse.MachineID]bourse.Machine) machineCounts {
	out := machineCounts{}
	maps.Copy(out, counts)
	for id, m := range known {
		row, counted := b.viewed(ctx, id)
		if counted {
			b.fresh.saw(id, row.UpdatedAt)
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
