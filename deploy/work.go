package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// work contains the changes to make to one group.
type work struct {
	group   *Group
	limit   float64
	count   int // number of kept machines that are supposed to run
	jobs    []*job
	places  []place
	made    map[bourse.MachineID]int              // IDs of the steps that create replacements, by replaced machine
	newest  *int                                  // ID of the first step that creates a machine; nil if there is none
	keptFor map[bourse.MachineID]bourse.MachineID // maps every machine to the kept machine of its unit
	first   bourse.MachineID                      // a kept machine that is not a standby; "" if there is none
}

// job contains the changes to make to an existing machine.
type job struct {
	machine  *machine
	config   *bourse.Config // desired config
	why      string
	update   bool // update the machine to config
	start    bool
	stopped  bool // do not start the machine
	uncordon bool // uncordon the machine once all machines are ready
	smoke    bool
	work     *work
}

// place is a machine to be created.
type place struct {
	placing
	former  bourse.MachineID // machine that this one replaces; "" if it is an additional machine
	primary *int             // index of the place that this machine is a standby for; nil if it is not a standby
}

// changes reports whether any machine is created or updated.
func (w *work) changes() bool {
	return len(w.places) > 0 || slices.ContainsFunc(w.jobs, func(j *job) bool { return j.update })
}

// runningUpdates returns the jobs that update running machines.
func (w *work) runningUpdates() []*job {
	return slices.DeleteFunc(slices.Clone(w.jobs), func(j *job) bool { return !j.update || j.stopped })
}

// runningJobs returns all jobs for running machines. Machines that are not ready or not serving come first.
func (w *work) runningJobs() []*job {
	out := slices.DeleteFunc(slices.Clone(w.jobs), func(j *job) bool { return j.stopped })
	slices.SortStableFunc(out, func(a, b *job) int {
		return compareBools(a.machine.ready() && a.machine.serves(), b.machine.ready() && b.machine.serves())
	})
	return out
}

// stoppedJobs returns the jobs for machines that are stopped and will remain stopped.
func (w *work) stoppedJobs() []*job {
	return slices.DeleteFunc(slices.Clone(w.jobs), func(j *job) bool { return !j.stopped })
}

// compareBools compares two booleans; false is less than true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// work compares a group with its existing machines, and returns the changes to make.
func (b *builder) work(app *App, g *Group) *work {
	w := &work{group: g, limit: app.MaxUnavailable, made: map[bourse.MachineID]int{}, keptFor: map[bourse.MachineID]bourse.MachineID{}}
	units := b.survey.units[g.Name]
	kept := b.keepCounted(app, w, units)
	for _, k := range kept {
		for _, m := range k.unit.all() {
			w.keptFor[m.ID] = k.machine.ID
		}
		if !k.standby(g) {
			if !k.down() || k.paused() {
				w.count++
			}
			w.first = cmp.Or(w.first, k.machine.ID)
		}
	}
	for _, k := range kept {
		b.retireUnit(k.unit, k.machine, fmt.Sprintf("machine %s is kept instead", k.machine))
		b.planMachine(w, k)
	}
	return w
}

// keptMachine is the one machine of a unit that a plan keeps. The unit's other machines are retired.
type keptMachine struct {
	*machine
	unit *unit
}

// standby reports whether the machine is a standby. A machine in a group with services never counts as one.
func (h *keptMachine) standby(g *Group) bool { return h.machine.standby() && !serving(&g.Config) }

// chooseKept chooses which machine of a unit to keep. It prefers a replacement that is in its desired state. If there
// is none, and the replaced machine does not serve, it chooses a replacement that serves. In all other cases, it keeps
// the replaced machine.
func (b *builder) chooseKept(u *unit, g *Group) *keptMachine {
	for _, m := range u.next {
		if !m.lost() && m.State != bourse.StateFailed && !b.mountDiffers(m, g) && b.differs(m, b.desiredConfig(m, g)) == "" {
			return &keptMachine{m, u}
		}
	}
	for _, m := range u.next {
		if m.serves() && (u.root.lost() || !u.root.serves()) {
			return &keptMachine{m, u}
		}
	}
	return &keptMachine{u.root, u}
}

// keepCounted returns the machines to keep, retires the others, and adds a place for each
// missing machine.
func (b *builder) keepCounted(app *App, w *work, units []*unit) []*keptMachine {
	g := w.group
	var machines, spares []*keptMachine
	for _, u := range units {
		if h := b.chooseKept(u, g); h.standby(g) {
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
		machines = b.adjustCounts(app, w, machines)
		if len(machines)+len(w.places) == 0 {
			for _, h := range spares {
				b.retireUnit(h.unit, nil, fmt.Sprintf("group %s is scaled to 0", g.Name))
			}
			spares = nil
		}
	}
	return append(machines, spares...)
}

// firstMachines adds places for the default number of machines. It is called if the group has no machines and its
// Counts is nil.
func (w *work) firstMachines(app *App) {
	w.place(app.Primary, "the first machine of its group")
	if !w.group.Spare || w.group.Mount != nil {
		return
	}
	if serving(&w.group.Config) {
		w.place(app.Primary, "a spare that also serves")
		return
	}
	w.place(app.Primary, "a standby for the first machine")
	last, first := &w.places[len(w.places)-1], 0
	last.stopped, last.primary = true, &first
}

func (w *work) place(in bourse.Region, why string) {
	w.places = append(w.places, place{placing: placing{group: w.group.Name, config: &w.group.Config, mount: w.group.Mount, region: in, why: why}})
}

// replace adds a place for a machine that replaces m. The new machine's metadata names the root of m's unit as the
// replaced machine, because the root is destroyed last. Until then, later plans can recognize the unit.
func (b *builder) replace(w *work, m *machine, config *bourse.Config, why string) {
	w.places = append(w.places, place{former: m.ID, placing: placing{
		group: w.group.Name, config: config, mount: w.group.Mount, region: m.Region, why: why,
		replaces: b.survey.rootOf(m).ID, cordoned: true, stopped: m.stoppedOnPurpose(), metadata: preservedMetadata(m.config.Metadata),
	}})
}

// preservedMetadata returns the metadata that plans do not set and must therefore preserve.
func preservedMetadata(metadata map[string]string) map[string]string {
	out := maps.Clone(metadata)
	for _, key := range []string{KeyPlatform, KeyGroup, KeyRelease, KeyVersion, KeyCanary, KeyReplaces, KeyCopies, KeyPaused} {
		delete(out, key)
	}
	return out
}

// adjustCounts adjusts the number of machines in each region to the desired number: it adds places for missing
// machines, and retires surplus ones. It returns the machines to keep.
func (b *builder) adjustCounts(app *App, w *work, machines []*keptMachine) []*keptMachine {
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
	here := map[bourse.Region][]*keptMachine{}
	for _, h := range machines {
		in := h.Region
		if anywhere {
			in = ""
		}
		here[in] = append(here[in], h)
	}
	slices.Sort(regions)
	var out []*keptMachine
	for _, in := range slices.Sorted(maps.Keys(here)) {
		out = append(out, b.retireSurplus(w.group, in, here[in], wanted)...)
	}
	for _, in := range regions {
		for i := len(here[in]); i < wanted[in]; i++ {
			w.place(in, scaleReason(wanted[in], w.group, in, len(here[in])))
		}
	}
	return out
}

// retireSurplus retires surplus machines in a region, and returns the others. It first retires
// machines that cannot serve, then machines that share their worker with other machines of
// the group, and then the newest machines.
func (b *builder) retireSurplus(g *Group, in bourse.Region, here []*keptMachine, wanted map[bourse.Region]int) []*keptMachine {
	use := func(x, y *keptMachine) int {
		return cmp.Or(-compareBools(x.serves(), y.serves()), -compareBools(!x.lost(), !y.lost()), -compareBools(x.ready(), y.ready()))
	}
	slices.SortFunc(here, func(x, y *keptMachine) int {
		return cmp.Or(use(x, y), cmp.Compare(x.CreatedAt, y.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	on, sharing := map[bourse.WorkerID]int{}, map[*keptMachine]int{}
	for _, h := range here {
		sharing[h] = on[h.Worker]
		on[h.Worker]++
	}
	slices.SortStableFunc(here, func(x, y *keptMachine) int { return cmp.Or(use(x, y), cmp.Compare(sharing[x], sharing[y])) })
	n := wanted[in]
	for _, h := range here[min(n, len(here)):] {
		b.retireUnit(h.unit, nil, scaleReason(n, g, in, len(here)))
	}
	kept := here[:min(n, len(here))]
	slices.SortFunc(kept, func(x, y *keptMachine) int { return compareMachines(x.machine, y.machine) })
	return kept
}

// scaleReason returns the reason for creating or retiring a group's machines in a region.
func scaleReason(to int, g *Group, in bourse.Region, from int) string {
	where := ""
	if in != "" {
		where = " in " + string(in)
	}
	return fmt.Sprintf("group %s%s is scaled from %d to %d", g.Name, where, from, to)
}

// planMachine adds a job for a kept machine if the machine must be changed. If the machine needs a different volume,
// planMachine replaces the machine instead.
func (b *builder) planMachine(w *work, h *keptMachine) {
	m, g := h.machine, w.group
	if m.lost() {
		where := "its worker"
		if m.Worker != "" {
			where += " " + string(m.Worker)
		}
		b.warn("machine %s in %s is not changed: %s does not answer", m, m.Region, where)
		return
	}
	hidden := m.Cordoned && (m.paused() || m != h.unit.root)
	j := &job{machine: m, config: b.desiredConfig(m, g), uncordon: hidden, smoke: g.Smoke, work: w}
	j.config.Standbys = w.standbys(m, j.config)
	standby := h.standby(g)
	j.stopped = standby || m.stoppedOnPurpose()
	if b.mountDiffers(m, g) {
		why := mountWhy(m, g)
		b.replace(w, m, &g.Config, why)
		b.retire(m, why)
		return
	}
	why := b.differs(m, j.config)
	if why == "" && standby {
		why = w.standbyChange(j.config)
	}
	switch {
	case why != "":
		j.update, j.why = true, why
	case m.paused() || !standby && (m.State == bourse.StateFailed || m.crashed() && b.resumes(m)):
		j.start, j.why, j.stopped = m.down() || m.State == bourse.StateFailed, "it should run", false
	case j.stopped && !hidden:
		return
	case hidden || !m.down() && !m.ready() && (m != h.unit.root || b.resumes(m)):
		j.why = "it is up to date, but not known to be ready yet"
	default:
		b.warnCordoned(m, hidden)
		return
	}
	b.warnCordoned(m, hidden)
	w.jobs = append(w.jobs, j)
}

// resumes reports whether an earlier plan for the same release has already changed m.
func (b *builder) resumes(m *machine) bool {
	return b.opts.Release != "" && m.release() == b.opts.Release
}

func (b *builder) warnCordoned(m *machine, hidden bool) {
	if m.Cordoned && !hidden && serving(m.config) {
		b.warn("machine %s in %s stays cordoned: it receives no requests", m, m.Region)
	}
}

// desiredConfig returns the desired config of a machine.
func (b *builder) desiredConfig(m *machine, g *Group) *bourse.Config {
	c := g.Config
	c.Metadata = b.metadata(g.Name, m.config.Metadata, g.Config.Metadata)
	if to := m.replaces(); to != "" && b.survey.machines[to] != nil {
		c.Metadata[KeyReplaces] = string(to)
	}
	if !m.Cordoned { // a cordoned machine stays marked until it is uncordoned
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

// differs describes how m differs from its desired config, or returns "" if there is no difference.
func (b *builder) differs(m *machine, want *bourse.Config) string {
	out := b.compare.differences(m.config, want, m.ImageRef.Digest, b.opts.Digests[want.Image])
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

// mountDiffers reports whether m needs a different volume and therefore cannot be updated in place.
func (b *builder) mountDiffers(m *machine, g *Group) bool { return mountWhy(m, g) != "" }

func mountWhy(m *machine, g *Group) string {
	switch mounts := m.config.Mounts; {
	case g.Mount == nil && len(mounts) == 0:
	case g.Mount == nil:
		return fmt.Sprintf("volume %s is no longer mounted", mounts[0].Volume)
	case len(mounts) == 0:
		return fmt.Sprintf("volume %s is now mounted", g.Mount.Volume)
	case mounts[0].Name != "" && mounts[0].Name != g.Mount.Volume:
		return fmt.Sprintf("volume changed to %s from %s", g.Mount.Volume, mounts[0].Name)
	}
	return ""
}

// standbys returns the desired primaries of a standby: the kept machines of its current primaries' units or, if there
// are none, any kept machine. If no machine is kept, the list stays the same.
func (w *work) standbys(m *machine, c *bourse.Config) []bourse.MachineID {
	if len(c.Standbys) == 0 {
		return nil
	}
	var out []bourse.MachineID
	for _, id := range c.Standbys {
		if heir, ok := w.keptFor[id]; ok && heir != m.ID && !slices.Contains(out, heir) {
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

// standbyChange returns the reason why a standby's list of primaries must change: a primary is replaced, or no primary
// is kept. It returns "" if there is no such reason.
func (w *work) standbyChange(c *bourse.Config) string {
	for i := range w.places {
		if id := w.places[i].former; slices.Contains(c.Standbys, id) {
			return fmt.Sprintf("it stands by for machine %s, which is replaced", id)
		}
	}
	if w.noneKept(c.Standbys) && w.first == "" && len(w.places) > 0 {
		return "the machine that it stands by for is destroyed"
	}
	return ""
}

// noneKept reports whether none of the given machines is kept.
func (w *work) noneKept(ids []bourse.MachineID) bool {
	return !slices.ContainsFunc(ids, func(id bourse.MachineID) bool { return w.keptFor[id] != "" })
}

// standbyConfig returns the config for a job's update. If the job's machine becomes the standby for a machine that
// the plan creates, that machine's ID is not known yet; standbyOf is then the ID of the step that creates it.
func (j *job) standbyConfig() (config *bourse.Config, standbyOf *int) {
	ids := j.config.Standbys
	if len(ids) == 0 {
		return j.config, nil
	}
	var rest []bourse.MachineID
	if j.work.noneKept(ids) && j.work.newest != nil {
		standbyOf, ids = j.work.newest, nil
	}
	for _, id := range ids {
		if made, ok := j.work.made[id]; ok && standbyOf == nil {
			standbyOf = &made
		} else {
			rest = append(rest, id)
		}
	}
	if standbyOf == nil {
		return j.config, nil
	}
	out := *j.config
	out.Standbys = rest
	return &out, standbyOf
}
