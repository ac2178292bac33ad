package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// work is what there is to do for one group.
type work struct {
	group  *Group
	limit  float64
	count  int // machines that are kept and run
	jobs   []*job
	places []place
	made   map[bourse.MachineID]int              // the steps that make a machine in place of another
	newest *int                                  // the first step that makes a machine
	heirs  map[bourse.MachineID]bourse.MachineID // which machine has the place of another
	first  bourse.MachineID                      // one that is kept and stands by for none
}

// job is what is to be done to a machine that is there.
type job struct {
	machine  *machine
	config   *bourse.Config // that it is to have
	why      string
	update   bool // to config
	start    bool
	stopped  bool // it is not started
	uncordon bool // once everything is ready
	smoke    bool
	work     *work
}

// place is a machine to be made.
type place struct {
	placing
	twin *int // the index of the place that it stands by for
}

// changes reports whether machines are made or get another config.
func (w *work) changes() bool {
	return len(w.places) > 0 || slices.ContainsFunc(w.jobs, func(j *job) bool { return j.update })
}

// warm are the updates of machines that run.
func (w *work) warm() []*job {
	return slices.DeleteFunc(slices.Clone(w.jobs), func(j *job) bool { return !j.update || j.stopped })
}

// lanes are all jobs of machines that run, with those first that are not ready anyway.
func (w *work) lanes() []*job {
	out := slices.DeleteFunc(slices.Clone(w.jobs), func(j *job) bool { return j.stopped })
	slices.SortStableFunc(out, func(a, b *job) int {
		return order(a.machine.ready() && a.machine.serves(), b.machine.ready() && b.machine.serves())
	})
	return out
}

// cold are the updates of machines that do not run, and will not.
func (w *work) cold() []*job {
	return slices.DeleteFunc(slices.Clone(w.jobs), func(j *job) bool { return !j.stopped })
}

// order puts false before true.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// work compares a group with what is there of it.
func (b *builder) work(app *App, g *Group) *work {
	w := &work{group: g, limit: app.MaxUnavailable, made: map[bourse.MachineID]int{}, heirs: map[bourse.MachineID]bourse.MachineID{}}
	units := b.survey.units[g.Name]
	kept := b.counted(app, w, units)
	for _, k := range kept {
		for _, m := range k.unit.all() {
			w.heirs[m.ID] = k.machine.ID
		}
		if !k.standby(g) {
			if !k.down() || k.paused() {
				w.count++
			}
			w.first = cmp.Or(w.first, k.machine.ID)
		}
	}
	for _, k := range kept {
		b.retireUnit(k.unit, k.machine, fmt.Sprintf("machine %s has its place", k.machine))
		b.judge(w, k)
	}
	return w
}

// holder is the machine of a unit that is to have its place.
type holder struct {
	*machine
	unit *unit
}

// standby reports whether the machine is a spare of a group.
func (h *holder) standby(g *Group) bool { return h.machine.standby() && !serving(&g.Config) }

// hold chooses which machine of a unit is kept: one that was made in place of another
// and is as wanted, or already serves; or the first one.
func (b *builder) hold(u *unit, g *Group) *holder {
	for _, m := range u.next {
		if !m.lost() && m.State != bourse.StateFailed && !b.mountDiffers(m, g) && b.differs(m, b.wanted(m, g)) == "" {
			return &holder{m, u}
		}
	}
	for _, m := range u.next {
		if m.serves() && (u.root.lost() || !u.root.serves()) {
			return &holder{m, u}
		}
	}
	return &holder{u.root, u}
}

// counted says which units stay, takes the others away and notes the machines that
// are missing.
func (b *builder) counted(app *App, w *work, units []*unit) []*holder {
	g := w.group
	var machines, spares []*holder
	for _, u := range units {
		if h := b.hold(u, g); h.standby(g) {
			spares = append(spares, h)
		} else {
			machines = append(machines, h)
		}
	}
	switch {
	case g.Counts == nil && len(units) > 0:
	case g.Counts == nil:
		w.firstMachines(app)
	default:
		machines = b.fit(app, w, machines)
		if len(machines)+len(w.places) == 0 {
			for _, h := range spares {
				b.retireUnit(h.unit, nil, fmt.Sprintf("no machine of group %s is wanted", g.Name))
			}
			spares = nil
		}
	}
	return append(machines, spares...)
}

// firstMachines are the machines of a group that has none and of which no number is wanted.
func (w *work) firstMachines(app *App) {
	w.place(app.Primary, "the first of its group")
	if !w.group.Spare || w.group.Mount != nil {
		return
	}
	if serving(&w.group.Config) {
		w.place(app.Primary, "a spare: another that serves")
		return
	}
	w.place(app.Primary, "a spare: it stands by for the first")
	last, twin := &w.places[len(w.places)-1], 0
	last.stopped, last.twin = true, &twin
}

func (w *work) place(in bourse.Region, why string) {
	w.places = append(w.places, place{placing: placing{group: w.group.Name, config: &w.group.Config, mount: w.group.Mount, in: in, why: why}})
}

// replaced notes that another machine is to be made in place of m. p has the reason.
func (w *work) replaced(m *machine, p placing) {
	p.group, p.config, p.mount, p.in = w.group.Name, &w.group.Config, w.group.Mount, m.Region
	p.replaces, p.hidden, p.metadata = m.ID, true, own(m.config.Metadata)
	p.stopped = m.rests()
	w.places = append(w.places, place{placing: p})
}

// own is metadata that neither plans nor configurations write: someone else's, which
// stays.
func own(metadata map[string]string) map[string]string {
	out := maps.Clone(metadata)
	for _, key := range []string{KeyPlatform, KeyGroup, KeyRelease, KeyVersion, KeyCanary, KeyReplaces, KeyPaused} {
		delete(out, key)
	}
	return out
}

// fit brings machines to the numbers that are wanted in each region.
func (b *builder) fit(app *App, w *work, machines []*holder) []*holder {
	wanted := map[bourse.Region]int{}
	var regions []bourse.Region
	for _, c := range w.group.Counts {
		in := cmp.Or(c.Region, app.Primary)
		if _, ok := wanted[in]; !ok {
			regions = append(regions, in)
		}
		wanted[in] += c.Count
	}
	_, anywhere := wanted[""]
	anywhere = anywhere && len(regions) == 1
	here := map[bourse.Region][]*holder{}
	for _, h := range machines {
		in := h.Region
		if anywhere {
			in = ""
		}
		here[in] = append(here[in], h)
	}
	slices.Sort(regions)
	var out []*holder
	for _, in := range slices.Sorted(maps.Keys(here)) {
		out = append(out, b.spare(w.group, in, here[in], wanted)...)
	}
	for _, in := range regions {
		for i := len(here[in]); i < wanted[in]; i++ {
			w.place(in, fmt.Sprintf("%s of group %s wanted%s, %d there", machinesOf(wanted[in]), w.group.Name, inRegion(in), len(here[in])))
		}
	}
	return out
}

// spare takes away the machines of a region of which there are too many, and
// returns the others: rather one that cannot serve than one that can, then one beside others of the
// group on its worker, the newest first.
func (b *builder) spare(g *Group, in bourse.Region, here []*holder, wanted map[bourse.Region]int) []*holder {
	use := func(x, y *holder) int {
		return cmp.Or(-order(x.serves(), y.serves()), -order(!x.lost(), !y.lost()), -order(x.ready(), y.ready()))
	}
	slices.SortFunc(here, func(x, y *holder) int {
		return cmp.Or(use(x, y), cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	on, beside := map[bourse.WorkerID]int{}, map[*holder]int{}
	for _, h := range here {
		beside[h] = on[h.Worker]
		on[h.Worker]++
	}
	slices.SortStableFunc(here, func(x, y *holder) int { return cmp.Or(use(x, y), cmp.Compare(beside[x], beside[y])) })
	n := wanted[in]
	for _, h := range here[min(n, len(here)):] {
		b.retireUnit(h.unit, nil, fmt.Sprintf("%s of group %s wanted%s, %d there", machinesOf(n), g.Name, inRegion(in), len(here)))
	}
	kept := here[:min(n, len(here))]
	slices.SortFunc(kept, func(x, y *holder) int { return compareMachines(x.machine, y.machine) })
	return kept
}

func machinesOf(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}

func inRegion(in bourse.Region) string {
	if in == "" {
		return ""
	}
	return " in " + string(in)
}

// judge says what is to be done to a machine that is kept.
func (b *builder) judge(w *work, h *holder) {
	m, g := h.machine, w.group
	if m.lost() {
		b.judgeLost(w, m)
		return
	}
	hidden := m.Cordoned && (m.paused() || m != h.unit.root)
	j := &job{machine: m, config: b.wanted(m, g), uncordon: hidden, smoke: g.Smoke, work: w}
	j.config.Standbys = w.standbys(m, j.config)
	standby := h.standby(g)
	j.stopped = standby || m.rests()
	if b.mountDiffers(m, g) {
		why := mountWhy(m, g)
		w.replaced(m, placing{why: why})
		b.retire(m, why)
		return
	}
	why := b.differs(m, j.config)
	if why == "" && standby {
		why = w.standsByForAnother(j.config)
	}
	switch {
	case why != "":
		j.update, j.why = true, why
	case m.paused() || !standby && (m.State == bourse.StateFailed || m.crashed() && b.resumes(m)):
		j.start, j.why, j.stopped = m.down() || m.State == bourse.StateFailed, "it is to run", false
	case j.stopped && !hidden:
		return
	case hidden || !m.down() && !m.ready() && (m != h.unit.root || b.resumes(m)):
		j.why = "it is as wanted, and not yet known to be ready"
	default:
		b.warnCordoned(m, hidden)
		return
	}
	b.warnCordoned(m, hidden)
	w.jobs = append(w.jobs, j)
}

// resumes reports whether m is of the release that the plan is for: an earlier plan has
// changed it already.
func (b *builder) resumes(m *machine) bool {
	return b.opts.Release != "" && m.release() == b.opts.Release
}

func (b *builder) warnCordoned(m *machine, hidden bool) {
	if m.Cordoned && !hidden && serving(m.config) {
		b.warn("machine %s in %s is cordoned, and stays so: nothing is sent to it", m, m.Region)
	}
}

// judgeLost replaces a machine whose worker does not answer, where that is wanted.
func (b *builder) judgeLost(w *work, m *machine) {
	on := "its worker"
	if m.Worker != "" {
		on += " " + string(m.Worker)
	}
	switch {
	case !b.opts.ReplaceLost:
		b.warn("machine %s in %s is left as it is: %s does not answer", m, m.Region, on)
	case w.group.Mount != nil || len(m.config.Mounts) > 0:
		b.warn("machine %s in %s is not replaced: %s does not answer, and has the machine's volume", m, m.Region, on)
	default:
		w.replaced(m, placing{why: on + " does not answer"})
		b.warn("machine %s in %s stays until its worker answers: plan again then, and it goes", m, m.Region)
	}
}

// wanted returns the config that a machine is to have.
func (b *builder) wanted(m *machine, g *Group) *bourse.Config {
	c := g.Config
	c.Metadata = b.stamped(g.Name, m.config.Metadata, g.Config.Metadata)
	if to := m.replaces(); to != "" && b.survey.machines[to] != nil {
		c.Metadata[KeyReplaces] = string(to)
	}
	if !m.Cordoned { // otherwise it stays marked until it is uncordoned
		delete(c.Metadata, KeyPaused)
	}
	if g.KeepGuest {
		guest := guestOf(m.config)
		c.Guest, c.Size = &guest, ""
	}
	c.Mounts = nil
	if g.Mount != nil && len(m.config.Mounts) > 0 {
		have := m.config.Mounts[0]
		mount := mountOf(&g.Config, g.Mount)
		mount.Volume, mount.SizeGB, mount.Encrypted = have.Volume, have.SizeGB, have.Encrypted
		c.Mounts = []bourse.Mount{mount}
	}
	c.Standbys = nil
	if !serving(&g.Config) {
		c.Standbys = m.config.Standbys
	}
	return &c
}

// differs says in what m is not as it is wanted, "" for nothing.
func (b *builder) differs(m *machine, want *bourse.Config) string {
	out := b.compare.differences(m.config, want, b.opts.Digests[want.Image], m.ImageRef.Digest)
	var keys []string
	for key, value := range want.Metadata {
		if has, ok := m.config.Metadata[key]; (!ok || has != value) && key != KeyRelease && key != KeyVersion {
			keys = append(keys, key)
		}
	}
	if slices.Sort(keys); len(keys) > 0 {
		out = append(out, "metadata changed: "+listed(keys))
	}
	if !slices.Equal(m.config.Mounts, want.Mounts) {
		out = append(out, "mounts changed")
	}
	if !slices.Equal(m.config.Standbys, want.Standbys) {
		out = append(out, "standbys changed")
	}
	return strings.Join(out, "; ")
}

// mountDiffers reports whether m has another volume than it is to have: it cannot be
// changed in place.
func (b *builder) mountDiffers(m *machine, g *Group) bool { return mountWhy(m, g) != "" }

func mountWhy(m *machine, g *Group) string {
	switch mounts := m.config.Mounts; {
	case g.Mount == nil && len(mounts) == 0:
	case g.Mount == nil:
		return fmt.Sprintf("volume %s is no longer mounted", mounts[0].Volume)
	case len(mounts) == 0:
		return fmt.Sprintf("a volume %s is mounted now", g.Mount.Volume)
	case mounts[0].Name != "" && mounts[0].Name != g.Mount.Volume:
		return fmt.Sprintf("the volume is %s now, was %s", g.Mount.Volume, mounts[0].Name)
	}
	return ""
}

// standbys returns what a spare stands by for: the machines that are in the places of
// those it did, or one that is kept when none is.
func (w *work) standbys(m *machine, c *bourse.Config) []bourse.MachineID {
	if len(c.Standbys) == 0 {
		return nil
	}
	var out []bourse.MachineID
	for _, id := range c.Standbys {
		if heir, ok := w.heirs[id]; ok && heir != m.ID && !slices.Contains(out, heir) {
			out = append(out, heir)
		}
	}
	if len(out) == 0 && w.first != "" {
		out = append(out, w.first)
	}
	if len(out) == 0 {
		return c.Standbys
	}
	return out
}

// standsByForAnother says why a spare has to change: another machine is made in place
// of one that it stands by for, or none of them stays.
func (w *work) standsByForAnother(c *bourse.Config) string {
	for i := range w.places {
		if id := w.places[i].replaces; slices.Contains(c.Standbys, id) {
			return fmt.Sprintf("it stands by for machine %s, which is replaced", id)
		}
	}
	if w.orphan(c.Standbys) && w.first == "" && len(w.places) > 0 {
		return "the machine that it stands by for goes"
	}
	return ""
}

// orphan reports whether no machine of these stays.
func (w *work) orphan(ids []bourse.MachineID) bool {
	return !slices.ContainsFunc(ids, func(id bourse.MachineID) bool { return w.heirs[id] != "" })
}

// standingBy returns the config of an update to s: of a machine that is made in place
// of one which it stands by for, the ID is not known yet.
func (b *builder) standingBy(s *Step, j *job) *bourse.Config {
	ids := j.config.Standbys
	if len(ids) == 0 {
		return j.config
	}
	var left []bourse.MachineID
	if j.work.orphan(ids) && j.work.newest != nil {
		s.StandbyOf, ids = j.work.newest, nil
	}
	for _, id := range ids {
		if made, ok := j.work.made[id]; ok && s.StandbyOf == nil {
			s.StandbyOf = &made
		} else {
			left = append(left, id)
		}
	}
	if s.StandbyOf == nil {
		return j.config
	}
	out := *j.config
	out.Standbys = left
	return &out
}
