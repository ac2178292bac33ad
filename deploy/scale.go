package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Pace controls how fast a plan changes machines, if the plan is not based on an [App]. The fields have the same
// meaning as in App.
type Pace struct {
	MaxUnavailable float64
	Wait           bourse.Duration
	Smoke          bool
}

// Scale returns a plan that changes groups to the given numbers of machines. New machines have the config of their
// group's newest machine; existing machines are not updated. In counts, an empty region means any region. Groups that
// are missing from counts are left unchanged.
func Scale(have State, counts map[string][]Count, pace Pace) Plan {
	s := newSurvey(&have, false)
	b := newBuilder("scale", have.App, s, Options{}, pace.Wait)
	app := &App{Name: have.App, Strategy: Rolling, MaxUnavailable: pace.MaxUnavailable, Wait: pace.Wait}
	for _, name := range sortedKeys(counts) {
		g := b.template(name, counts[name])
		if g == nil {
			b.refuse("the app has no machine of group %s to copy: deploy it first", bourse.Quoted(name))
			continue
		}
		g.Smoke = pace.Smoke
		app.Groups = append(app.Groups, *g)
	}
	if len(b.plan.Refused) > 0 || !b.validate(app) {
		return b.plan
	}
	var works []*work
	for i := range app.Groups {
		works = append(works, b.counts(app, &app.Groups[i]))
	}
	b.addGroups(app, works)
	b.finish()
	return b.plan
}

// template returns the named group with the config of its newest machine, or nil if there
// is no machine to copy.
func (b *builder) template(name string, counts []Count) *Group {
	var newest *machine
	for _, u := range b.survey.units[name] {
		for _, m := range u.all() {
			better := newest == nil || newest.standby() && !m.standby() ||
				newest.standby() == m.standby() && (m.release() > newest.release() || m.release() == newest.release() && m.CreatedAt > newest.CreatedAt)
			if !m.lost() && better {
				newest = m
			}
		}
	}
	if newest == nil {
		return nil
	}
	g := &Group{Name: name, Config: *newest.config, Counts: counts}
	if g.Counts == nil {
		g.Counts = []Count{}
	}
	g.Config.Standbys = nil
	g.Config.Metadata = maps.Clone(newest.config.Metadata)
	if len(newest.config.Mounts) > 0 {
		m := newest.config.Mounts[0]
		g.Mount = &Mount{Volume: m.Name, Path: m.Path, SizeGB: max(1, m.SizeGB)}
	}
	return g
}

// counts determines which machines must be added to a group, or removed from it, to reach the desired number. It does
// not compare configs. If an earlier plan was interrupted, counts continues where that plan stopped.
func (b *builder) counts(app *App, g *Group) *work {
	w := &work{group: g, limit: app.MaxUnavailable, made: map[bourse.MachineID]int{}, keptFor: map[bourse.MachineID]bourse.MachineID{}}
	for _, h := range b.keepCounted(app, w, b.survey.units[g.Name]) {
		m := h.machine
		if !h.standby(g) && (!m.down() || m.paused()) {
			w.count++
		}
		if m.lost() || !m.paused() {
			continue
		}
		w.jobs = append(w.jobs, &job{
			machine: m, config: m.config, start: m.down(), uncordon: m.Cordoned, smoke: g.Smoke, work: w,
			why: "it is kept after all",
		})
	}
	return w
}

// Resize returns a plan that changes the size of the machines in the named groups, a few at
// a time. If groups is empty, it resizes all machines.
func Resize(have State, groups []string, guest bourse.Guest, pace Pace) Plan {
	s := newSurvey(&have, false)
	b := newBuilder("resize", have.App, s, Options{}, pace.Wait)
	guest = guest.WithDefaults()
	if err := guest.Validate(); err != nil {
		b.refuse("%v", err)
		return b.plan
	}
	for _, name := range b.selectGroups(groups) {
		w := &work{group: &Group{Name: name, Smoke: pace.Smoke}, limit: pace.MaxUnavailable, made: map[bourse.MachineID]int{}}
		for _, u := range s.units[name] {
			for _, m := range u.all() {
				b.resize(w, m, guest)
			}
		}
		b.rolling(w, nil, true)
	}
	return b.plan
}

func (b *builder) resize(w *work, m *machine, guest bourse.Guest) {
	stopped := m.down() || m.standby()
	if !stopped {
		w.count++
	}
	now := guestOf(m.config)
	switch {
	case m.lost():
		b.warn("machine %s in %s keeps its size: its worker does not answer", m, m.Region)
	case now != guest:
		c := *m.config
		c.Guest, c.Size = &guest, ""
		w.jobs = append(w.jobs, &job{
			machine: m, config: &c, update: true, stopped: stopped, smoke: w.group.Smoke, work: w,
			why: fmt.Sprintf("size changed from %s to %s", size(now), size(guest)),
		})
	}
}
