package deploy

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/workload"
)

// Options contains optional settings for [Make].
type Options struct {
	Release release.ID // release to record on created and updated machines; "" leaves recorded releases unchanged
	Version int64      // number of the release; 0 means none
	// Digests maps image names in configs to the digests ("sha256:…") to which they were resolved. A machine that runs
	// a different digest of the same name is updated. For an image that is missing from Digests, only names are
	// compared.
	Digests map[string]string
}

// Make returns a plan that changes an app to its desired state. If an earlier plan was interrupted, the new plan
// continues where the earlier one stopped. The plan has no steps if the app is already in its desired state.
func Make(app App, have State, opts Options) Plan {
	s := newSurvey(&have, false)
	b := newBuilder(string(app.Strategy), app.Name, s, opts, app.Wait)
	b.plan.Reserve = app.Reserve
	for _, m := range s.foreign {
		b.warn("machine %s in %s is not changed: deploys do not manage it (its metadata has no %s %s)", m, m.Region, KeyPlatform, Platform)
	}
	if !b.validate(&app) {
		return b.plan
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
	b.addGroups(&app, works)
	b.finish()
	return b.plan
}

// validate reports whether app is valid. If it is not, validate adds the reasons to the
// plan's refusals.
func (b *builder) validate(app *App) bool {
	names := map[string]bool{}
	for i := range app.Groups {
		name := app.Groups[i].Name
		if name == "" || names[name] || name == CommandGroup || slices.Contains(foreignGroups, name) {
			b.refuse("group %s: each group requires a unique name that is not reserved", bourse.Quoted(name))
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
		b.refuse("the app has no group of machines: to remove all machines, destroy the app")
	case !slices.Contains([]Strategy{Rolling, Immediate, Canary, BlueGreen}, app.Strategy):
		b.refuse("unknown strategy %s: use rolling, immediate, canary or bluegreen", bourse.Quoted(string(app.Strategy)))
	}
	return len(b.plan.Refused) == 0
}

// MaxCount is the maximum number of machines that a group may have in one region.
const MaxCount = 10_000

// retireGone retires the machines of groups that the app no longer has, and temporary machines left behind by earlier
// plans.
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
	return "a canary of an unfinished deploy"
}

// retireUnit retires all machines of a unit, except keep.
func (b *builder) retireUnit(u *unit, keep *machine, why string) {
	for _, m := range u.all() {
		if m != keep {
			b.retire(m, why)
		}
	}
}

// command returns the step that runs a release command.
func (b *builder) command(c *Command) Step {
	config := c.Config
	config.Metadata = b.metadata(CommandGroup, c.Config.Metadata)
	config.AutoDestroy, config.Restart = true, &bourse.Restart{Policy: bourse.RestartNo}
	config.Services, config.Checks, config.Standbys, config.Schedule, config.Mounts = nil, nil, nil, "", nil
	return Step{Do: RunCommand{&config, bourse.Duration(c.Timeout)}, Group: CommandGroup, Why: "the release command, before any machine is changed"}
}

// addGroups adds the steps for each group according to the app's strategy.
func (b *builder) addGroups(app *App, works []*work) {
	for _, w := range works {
		b.checkStrategy(app.Strategy, w)
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

// checkStrategy refuses the plan if the strategy cannot be used for the group.
func (b *builder) checkStrategy(s Strategy, w *work) {
	if s != Canary && s != BlueGreen || len(w.runningUpdates()) == 0 {
		return
	}
	name := w.group.Name
	if w.group.Mount != nil {
		b.refuse("strategy %s: each machine of group %s has a volume, which two machines cannot share: use rolling or immediate", s, name)
	}
	if s == BlueGreen && serving(&w.group.Config) && len(workload.Checks(&w.group.Config)) == 0 {
		b.refuse("strategy bluegreen: group %s has services, but no check that tells when new machines can serve: add one, or use rolling", name)
	}
}

// rolling adds the steps that change a group's machines, a few at a time. If wait is false, the steps change all of
// them at once.
func (b *builder) rolling(w *work, begin []int, wait bool) {
	warm := w.runningJobs()
	var first []int
	n := len(warm)
	if wait {
		n = unavailable(w.limit, w.count)
	}
	addRolling(len(warm), max(1, n), begin, func(i int, after []int) []int {
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
	for _, j := range w.stoppedJobs() {
		b.change(j, false, first)
	}
}

// canary adds the steps that test the group's new config on an additional machine, which does not receive requests. It
// returns the steps after which the group's machines may be changed.
func (b *builder) canary(w *work) []int {
	warm := w.runningUpdates()
	if len(warm) == 0 || w.group.Mount != nil {
		return b.begin
	}
	config := w.group.Config
	config.DNS = &bourse.DNS{SkipRegistration: true} // do not register the machine in DNS
	p := placing{
		group: w.group.Name, config: &config, region: warm[0].machine.Region, canary: true, cordoned: true,
		why: "an additional machine (canary) tests the release",
	}
	id := b.make(p, b.begin...)
	ready := b.add(b.stepOnCreated(id, b.ready(w.group.Smoke), "the canary can serve"), id)
	return []int{b.add(b.stepOnCreated(id, DestroyMachine{}, "the canary was ready"), ready)}
}

// blueGreen adds the steps that replace each running machine that must be updated. Machines that are stopped, or that
// stay cordoned, are updated in place.
func (b *builder) blueGreen(w *work) {
	for _, j := range w.runningJobs() {
		if !j.update || j.machine.Cordoned && !j.uncordon {
			b.change(j, true, b.begin)
			continue
		}
		b.replace(w, j.machine, j.config, j.why)
		b.retire(j.machine, "a new machine replaces it")
	}
	first := b.begin
	if ready := b.places(w, b.begin, true); len(ready) > 0 {
		first = ready[:1]
	}
	for _, j := range w.stoppedJobs() {
		b.change(j, false, first)
	}
}

// change adds the steps for one job, and returns those that the next job must wait for.
func (b *builder) change(j *job, wait bool, after []int) []int {
	m, last := j.machine, after
	switch {
	case j.update:
		do := UpdateMachine{Former: m.Config, Instance: m.InstanceID, Stopped: j.stopped}
		do.Config, do.StandbyOf = j.standbyConfig()
		if do.StandbyOf != nil {
			after = append(slices.Clone(after), *do.StandbyOf)
		}
		last = []int{b.add(stepOn(m, do, j.why), after...)}
	case j.start:
		last = []int{b.add(stepOn(m, StartMachine{}, j.why), after...)}
	}
	if !j.stopped && (wait || !j.update) {
		last = []int{b.add(stepOn(m, b.ready(j.smoke), j.why), last...)}
	}
	if m.paused() && !m.Cordoned && !j.update {
		last = []int{b.add(pause(m, false, "it is no longer paused"), last...)}
	}
	if j.uncordon {
		b.uncordons = append(b.uncordons, uncordon{m, stepOn(m, UncordonMachine{}, "it is ready")})
	}
	return last
}

// places adds the steps that create a group's missing machines. It returns the last step
// for each machine.
func (b *builder) places(w *work, begin []int, wait bool) []int {
	var ends []int
	made := map[int]int{} // steps that create the machines, by index in w.places
	for i := range w.places {
		p := &w.places[i]
		after := begin
		if p.primary != nil {
			id := made[*p.primary]
			p.standbyOf = &id
			after = append(slices.Clone(begin), id)
		}
		id := b.make(p.placing, after...)
		made[i] = id
		if w.newest == nil {
			w.newest = &id
		}
		end := id
		if !p.stopped && (wait || p.cordoned || len(b.retires) > 0) {
			end = b.add(b.stepOnCreated(id, b.ready(w.group.Smoke), p.why), id)
		}
		if p.cordoned {
			b.uncordons = append(b.uncordons, uncordon{step: b.stepOnCreated(id, UncordonMachine{}, "it is ready")})
		}
		if p.former != "" {
			w.made[p.former] = id
		}
		ends = append(ends, end)
	}
	return ends
}
