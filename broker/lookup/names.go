package lookup

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Named lists an app's machines that have the given name and are not destroyed. It uses the view and recent replies,
// and asks the workers only if the view is out of sync.
func (k *Machines) Named(ctx context.Context, app *bourse.App, name string) []*bourse.Machine {
	return k.namedBy(ctx, app, name, true)
}

// Conflict returns the ID of the older machine that, according to the view, has the same name as m, or "" if there is
// none. It does not query workers, because the result is only displayed.
func (k *Machines) Conflict(ctx context.Context, m *bourse.Machine) bourse.MachineID {
	if !hasName(m) {
		return ""
	}
	all := k.namedBy(ctx, &bourse.App{Name: m.App, ID: m.AppID}, m.Name, false)
	if len(all) == 0 || all[0].ID == m.ID || byOrder(all[0], m) > 0 {
		return ""
	}
	return all[0].ID
}

// namedBy implements Named. It asks workers only if ask is set.
func (k *Machines) namedBy(ctx context.Context, app *bourse.App, name string, ask bool) []*bourse.Machine {
	replied := k.fresh.of(app.Name) // must happen before the view is read; see fresh.of
	rows, err := k.View.Machines(ctx, inventory.Filter{App: app.Name, Name: name})
	if err != nil {
		k.viewFailed(ctx, err)
	}
	byID := map[bourse.MachineID]*bourse.Machine{}
	if ask && (err != nil || !k.View.InSync()) {
		found, _ := k.Find(ctx, k.Directory.Workers(), app, fabric.MachinesQuery{Name: name})
		for i := range found {
			byID[found[i].ID] = &found[i]
		}
	}
	for i := range rows {
		if known := byID[rows[i].ID]; k.isOwnersRow(&rows[i]) && (known == nil || known.UpdatedAt.Before(rows[i].UpdatedAt)) {
			byID[rows[i].ID] = &rows[i].Machine
		}
	}
	for id, m := range replied {
		if known := byID[id]; known == nil || known.UpdatedAt.Before(m.UpdatedAt) {
			byID[id] = &m
		}
	}
	var out []*bourse.Machine
	for _, m := range byID {
		if m.Name == name && m.OwnedBy(app) && hasName(m) {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, byOrder)
	return out
}

// hasName reports whether a machine has a name that no other machine of its app may use. A machine that has been
// destroyed, or is being destroyed, no longer reserves its name.
func hasName(m *bourse.Machine) bool {
	return m.Name != "" && m.State != bourse.StateDestroying && m.State != bourse.StateDestroyed
}

// byOrder compares machines by the time of their orders. It gives the same result on every server. If several
// machines have the same name, the first one in this order owns the name.
func byOrder(a, b *bourse.Machine) int {
	return cmp.Or(strings.Compare(string(a.Order), string(b.Order)), strings.Compare(string(a.ID), string(b.ID)))
}

// NameConflicts returns, for each machine whose name was already taken, the ID of the older machine with that name.
func NameConflicts(machines []*inventory.Listed) map[bourse.MachineID]bourse.MachineID {
	type name struct {
		app  bourse.AppRef
		name string
	}
	of := func(m *bourse.Machine) name { return name{bourse.AppRef{Name: m.App, ID: m.AppID}, m.Name} }
	first := make(map[name]*bourse.Machine, len(machines))
	out := map[bourse.MachineID]bourse.MachineID{}
	for _, l := range machines {
		m := &l.Machine
		if !hasName(m) {
			continue
		}
		has := first[of(m)]
		switch {
		case has == nil:
			first[of(m)] = m
			continue
		case byOrder(m, has) < 0:
			first[of(m)] = m
		}
		out[m.ID], out[has.ID] = "", ""
	}
	for _, l := range machines {
		if _, shared := out[l.ID]; !shared {
			continue
		}
		if has := first[of(&l.Machine)]; has.ID != l.ID {
			out[l.ID] = has.ID
		} else {
			delete(out, l.ID)
		}
	}
	return out
}
