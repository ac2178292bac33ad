package deploy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/release"
	"github.com/bourse-dev/bourse/workload"
)

// Options are what a plan needs to know beside what is wanted and what is there.
type Options struct {
	Release release.ID // that machines which are made or changed will be of; "": they keep theirs
	Version int64      // its number; 0: none
	// Digests are what images were resolved to, "sha256:…" by name as configs have it. A
	// machine whose image of the same name is another one is updated; of an image
	// that is not listed names are compared.
	Digests map[string]string
	// ReplaceLost says that machines whose worker does not answer are replaced on others;
	// the lost ones are destroyed by a later plan, once their worker answers. Otherwise
	// they are left alone, with a warning.
	ReplaceLost bool
}

// Make returns what has to be done for app to be as it is wanted. It may be asked
// again whatever an interrupted plan has left: it goes on from there. A plan for an app
// that is as it is wanted has no steps.
func Make(app App, have State, opts Options) Plan {
	s := look(&have, false)
	b := newBuilder(string(app.Strategy), app.Name, s, opts, app.Wait)
	b.plan.Reserve = app.Reserve
	for _, m := range s.foreign {
		b.warn("machine %s in %s is not touched: no deploy looks after it (its metadata has no %s %s)", m, m.Region, KeyPlatform, Platform)
	}
	if !b.sensible(&app) {
		return b.done()
	}
	works := make([]*work, 0, len(app.Groups))
	changes := false
	for i := range app.Groups {
		w := b.work(&app, &app.Groups[i])
		works, changes = append(works, w), changes || w.changes()
	}
	b.retireGone(&app)
	if changes && app.Command != nil {
		b.begin = []int{b.add(b.command(app.Command))}
	}
	b.shape(&app, works)
	b.finish()
	return b.done()
}

func (b *builder) done() Plan {
	if b.plan.Steps == nil {
		b.plan.Steps = []Step{}
	}
	return b.plan
}

// sensible refuses what no plan can be made of.
func (b *builder) sensible(app *App) bool {
	names := map[string]bool{}
	for i := range app.Groups {
		name := app.Groups[i].Name
		if name == "" || names[name] || name == CommandGroup || slices.Contains(groupsOfOthers, name) {
			b.refuse("group %s: a group has a name of its own, which is not reserved", bourse.Quoted(name))
		}
		names[name] = true
		for _, c := range app.Groups[i].Counts {
			if c.Count < 0 || c.Count > MaxCount {
				b.refuse("group %s: %d machines in %s: use 0 to %d", name, c.Count, c.Region, MaxCount)
			}
		}
	}
	switch {
	case len(app.Groups) == 0:
		b.refuse("the app has no group of machines: to take all machines away, destroy the app")
	case !slices.Contains([]Strategy{Rolling, Immediate, Canary, BlueGreen}, app.Strategy):
		b.refuse("unknown strategy %s: use rolling, immediate, canary or bluegreen", bourse.Quoted(string(app.Strategy)))
	}
	return len(b.plan.Refused) == 0
}

// MaxCount is how many machines of a group there may be in one region.
const MaxCount = 10_000

// retireGone takes away what the app has no group for, and what other plans have left.
func (b *builder) retireGone(app *App) {
	for _, name := range slices.Sorted(maps.Keys(b.survey.units)) {
		if slices.ContainsFunc(app.Groups, func(g Group) bool { return g.Name == name }) {
			continue
		}
		for _, u := range b.survey.units[name] {
			b.retireUnit(u, nil, fmt.Sprintf("the configuration has no group %s", name))
		}
	}
	for _, m := range b.survey.leftovers {
		b.retire(m, leftoverOf(m))
	}
}

func leftoverOf(m *machine) string {
	if m.group == CommandGroup {
		return "left by a release command"
	}
	return "a canary of a deploy that did not end"
}

// retireUnit takes a unit away, but for the machine that is kept, if any.
func (b *builder) retireUnit(u *unit, keep *machine, why string) {
	for _, m := range u.all() {
		if m != keep {
			b.retire(m, why)
		}
	}
}

// command is the step that runs a release command.
func (b *builder) command(c *Command) Step {
	config := c.Config
	config.Metadata = b.stamped(CommandGroup, c.Config.Metadata)
	config.AutoDestroy, config.Restart = true, &bourse.Restart{Policy: bourse.RestartNo}
	config.Services, config.Checks, config.Standbys, config.Schedule, config.Mounts = nil, nil, nil, "", nil
	return Step{Do: RunCommand, Group: CommandGroup, Config: &config, Wait: bourse.Duration(c.Timeout), Why: "the release command, before any machine is changed"}
}

// shape adds the steps of each group in the form of the app's strategy.
func (b *builder) shape(app *App, works []*work) {
	for _, w := range works {
		b.tried(app.Strategy, w)
		switch app.Strategy {
		case BlueGreen:
			b.blueGreen(w)
		case Canary:
			b.rolling(w, b.canary(w), true)
		case Immediate:
			b.rolling(w, b.begin, false)
		case Rolling:
			b.rolling(w, b.begin, true)
		}
	}
}

// tried refuses a strategy that the group cannot be deployed with.
func (b *builder) tried(s Strategy, w *work) {
	if s != Canary && s != BlueGreen || len(w.warm()) == 0 {
		return
	}
	name := w.group.Name
	if w.group.Mount != nil {
		b.refuse("strategy %s: machines of group %s have a volume each, which two cannot share: use rolling or immediate", s, name)
	}
	if s == BlueGreen && serving(&w.group.Config) && len(workload.Checks(&w.group.Config)) == 0 {
		b.refuse("strategy bluegreen: group %s has services and no check that says when new machines can serve: add one, or use rolling", name)
	}
}

// rolling changes the machines of a group some at a time; without wait all at once.
func (b *builder) rolling(w *work, begin []int, wait bool) {
	warm := w.lanes()
	var first []int
	n := len(warm)
	if wait {
		n = unavailable(w.limit, w.count)
	}
	roll(len(warm), max(1, n), begin, func(i int, after []int) []int {
		if !wait {
			after = begin
		}
		end := b.change(warm[i], wait || warm[i].uncordon, after)
		if i == 0 && wait {
			first = end
		}
		return end
	})
	if first == nil {
		first = begin
	}
	b.places(w, begin, wait)
	for _, j := range w.cold() {
		b.change(j, false, first)
	}
}

// canary tries the group's new config on a machine that is not served.
func (b *builder) canary(w *work) []int {
	warm := w.warm()
	if len(warm) == 0 || w.group.Mount != nil {
		return b.begin
	}
	config := w.group.Config
	config.DNS = &bourse.DNS{SkipRegistration: true} // no name leads to it
	p := placing{group: w.group.Name, config: &config, in: warm[0].machine.Region, hidden: true, why: "a canary: one more machine tries the release"}
	id := b.make(p, b.begin...)
	b.plan.Steps[id].Config.Metadata[KeyCanary] = "true"
	ready := b.await(b.of(id, "", "the canary can serve"), w.group.Smoke, id)
	return []int{b.add(b.of(id, DestroyMachine, "the canary has been ready"), ready)}
}

// blueGreen makes a new machine beside each that serves.
func (b *builder) blueGreen(w *work) {
	for _, j := range w.lanes() {
		if !j.update || j.machine.Cordoned && !j.uncordon {
			b.change(j, true, b.begin)
			continue
		}
		w.replaced(j.machine, placing{why: j.why})
		w.places[len(w.places)-1].config = j.config
		b.retire(j.machine, "a new machine has its place")
	}
	first := b.begin
	if ready := b.places(w, b.begin, true); len(ready) > 0 {
		first = ready[:1]
	}
	for _, j := range w.cold() {
		b.change(j, false, first)
	}
}

// change does to a machine what its job says, and returns what comes next after it.
func (b *builder) change(j *job, wait bool, after []int) []int {
	m, last := j.machine, after
	switch {
	case j.update:
		s := on(m, UpdateMachine, j.why)
		s.Config, s.Former, s.Instance, s.Stopped, s.Hidden = j.config, m.Config, m.InstanceID, j.stopped, m.Cordoned
		s.Config = b.standingBy(&s, j)
		if s.StandbyOf != nil {
			after = append(slices.Clone(after), *s.StandbyOf)
		}
		last = []int{b.add(s, after...)}
	case j.start:
		last = []int{b.add(on(m, StartMachine, j.why), after...)}
	}
	if !j.stopped && (wait || !j.update) {
		last = []int{b.await(on(m, "", j.why), j.smoke, last...)}
	}
	if m.paused() && !m.Cordoned && !j.update {
		last = []int{b.add(paused(m, false, "it is no longer paused"), last...)}
	}
	if j.uncordon {
		b.uncordons = append(b.uncordons, uncordon{machine: m, step: on(m, UncordonMachine, "it is ready")})
	}
	return last
}

// places makes the machines of a group that are not there, and returns the steps after
// which each is as it is wanted.
func (b *builder) places(w *work, begin []int, wait bool) []int {
	var ends []int
	made := map[int]int{} // by index in w.places
	for i := range w.places {
		p := &w.places[i]
		after := begin
		if p.twin != nil {
			id := made[*p.twin]
			p.standby = &id
			after = append(slices.Clone(begin), id)
		}
		id := b.make(p.placing, after...)
		made[i] = id
		if w.newest == nil {
			w.newest = &id
		}
		end := id
		if !p.stopped && (wait || p.hidden || len(b.retires) > 0) {
			end = b.await(b.of(id, "", p.why), w.group.Smoke, id)
		}
		if p.hidden {
			b.uncordons = append(b.uncordons, uncordon{of: &id, step: b.of(id, UncordonMachine, "it is ready")})
		}
		if p.replaces != "" {
			w.made[p.replaces] = id
		}
		ends = append(ends, end)
	}
	return ends
}
