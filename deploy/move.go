package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Moving says which machines are to be made again elsewhere. That it is elsewhere is
// the exchange's: a worker that is cordoned takes none of them.
type Moving struct {
	Machines []bourse.MachineID // these; or
	From     bourse.WorkerID    // all of the app's on this worker
	Why      string             // for a reader: "worker a is drained"
}

// Move returns the plan that makes machines again on other workers, and takes the former
// ones away once the new ones serve, some at a time. A machine with a volume is
// stopped while its volume is forked, so that nothing that it writes is lost: of
// such machines of a group no more are away at once than may be unavailable. A machine that
// runs to its end is refused: it would run twice.
func Move(have State, what Moving, pace Pace) Plan {
	s := look(&have, true)
	b := newBuilder("move", have.App, s, Options{}, pace.Wait)
	if len(what.Machines) == 0 && what.From == "" {
		b.refuse("no machine is named, and no worker")
	}
	for _, id := range what.Machines {
		if s.machines[id] == nil {
			b.refuse("the app has no machine %s", bourse.Quoted(string(id)))
		}
	}
	why := what.Why
	if why == "" {
		why = "it is to be on another worker"
	}
	for _, group := range sortedKeys(s.units) {
		b.moveGroup(s.units[group], &what, pace, why)
	}
	return b.done()
}

// move is one machine that goes, and what takes its place.
type move struct {
	from   *machine
	to     *machine   // made by a plan that did not end
	stale  []*machine // likewise, and of no use
	spares []*machine // that stand by for it or for what was made of it, and stay
	twins  []*move    // that it stands by for
	beside []*move    // whose spare is one of its own, which it changes for both
	made   Step       // names the machine that takes its place
}

func (b *builder) moveGroup(units []*unit, what *Moving, pace Pace, why string) {
	var moves []*move
	running := 0
	for _, u := range units {
		if !u.root.down() {
			running++
		}
		if mv := b.movable(u, what); mv != nil {
			mv.spares = sparesOf(units, u)
			moves = append(moves, mv)
		}
	}
	slices.SortStableFunc(moves, func(a, b *move) int { return order(a.from.standby(), b.from.standby()) })
	b.pairSpares(moves)
	roll(len(moves), unavailable(pace.MaxUnavailable, running), nil, func(i int, after []int) []int {
		if moves[i].to == nil && len(moves[i].from.config.Mounts) > 0 {
			return b.moveVolume(moves[i], pace, why, after)
		}
		return b.moveMachine(moves[i], pace, why, after)
	})
}

// pairSpares lets each spare be changed once: a spare that moves too is made for the
// machines that are made before it.
func (b *builder) pairSpares(moves []*move) {
	changed := map[*machine]*move{}
	for _, mv := range moves {
		mv.spares = slices.DeleteFunc(mv.spares, func(spare *machine) bool {
			i := slices.IndexFunc(moves, func(other *move) bool { return other.from == spare })
			switch {
			case i >= 0:
				moves[i].twins = append(moves[i].twins, mv)
			case changed[spare] != nil:
				b.warn("machine %s stands by for machine %s, which is made again, and no longer does: deploy to renew it", spare, mv.from)
				changed[spare].beside = append(changed[spare].beside, mv)
			default:
				changed[spare] = mv
				return false
			}
			return true
		})
	}
}

// sparesOf returns the machines that stand by for one of u. A plan that did not end may
// have let a spare stand by for what it made, which this one takes away again.
func sparesOf(units []*unit, u *unit) []*machine {
	var out []*machine
	for _, other := range units {
		ids := other.root.config.Standbys
		has := func(m *machine) bool { return slices.Contains(ids, m.ID) }
		if other.root.Config != nil && slices.ContainsFunc(u.all(), has) {
			out = append(out, other.root)
		}
	}
	return out
}

// movable returns the move of a unit, nil when it is not to move or cannot.
func (b *builder) movable(u *unit, what *Moving) *move {
	m := u.root
	if !slices.Contains(what.Machines, m.ID) && (what.From == "" || m.Worker != what.From) {
		return nil
	}
	mv := &move{from: m}
	for _, n := range u.next {
		if mv.to == nil && !n.lost() && n.Worker != m.Worker && n.State != bourse.StateFailed && b.alike(m, n) {
			mv.to = n
		} else {
			mv.stale = append(mv.stale, n)
		}
	}
	switch c := m.config; {
	case m.lost():
		b.refuse("machine %s in %s cannot be moved: its worker does not answer", m, m.Region)
	case c.AutoDestroy && c.RestartPolicy().Policy == bourse.RestartNo && !m.down():
		b.refuse("machine %s in %s cannot be moved: it runs to its end, and a second one would do its work twice; wait for it, or stop it", m, m.Region)
	case c.ImageKind() == bourse.PollerImage:
		b.refuse("machine %s in %s cannot be moved: it is a job of a gateway's poller, which no other worker has", m, m.Region)
	default:
		return mv
	}
	return nil
}

// alike reports whether n is as m is, but for what plans write and its volume.
func (b *builder) alike(m, n *machine) bool {
	return len(b.compare.differences(m.config, n.config, "", "")) == 0 && len(m.config.Mounts) == len(n.config.Mounts)
}

// moveMachine makes a machine elsewhere, and takes the former away once it serves.
func (b *builder) moveMachine(mv *move, pace Pace, why string, after []int) []int {
	m := mv.from
	target := b.target(mv, nil, why, &after)
	if !m.down() || m.paused() {
		after = []int{b.await(target(AwaitReady), pace.Smoke, after...)}
	}
	after = b.renew(mv, after)
	after = b.adopt(mv, target, after)
	if !m.down() {
		after = []int{b.add(paused(m, true, why), after...)}
		if m.serves() {
			after = []int{b.add(on(m, CordonMachine, why), after...)}
		}
		after = []int{b.add(Step{Do: AwaitProxies, Group: m.group, In: m.Region, Why: "it is served no more"}, after...)}
		after = []int{b.add(on(m, StopMachine, why), after...)}
	}
	b.discard(mv, why, after)
	return after
}

// moveVolume stops a machine, forks its volume and makes the machine again with that.
func (b *builder) moveVolume(mv *move, pace Pace, why string, after []int) []int {
	m := mv.from
	if !m.down() {
		after = []int{b.add(paused(m, true, why), after...)}
		if m.serves() {
			after = []int{b.add(on(m, CordonMachine, why), after...)}
			after = []int{b.add(Step{Do: AwaitProxies, Group: m.group, In: m.Region, Why: "it is served no more"}, after...)}
		}
		after = []int{b.add(on(m, StopMachine, "nothing may write to its volume while that is forked"), after...)}
		b.warn("machine %s in %s does not serve while its volume %s is forked", m, m.Region, m.config.Mounts[0].Volume)
	}
	mount := m.config.Mounts[0]
	size := max(1, mount.SizeGB)
	name := mount.Name
	if v := b.survey.known[mount.Volume]; v != nil {
		size, name = v.SizeGB, v.Name
	}
	fork := b.add(Step{
		Do: MakeVolume, Group: m.group, In: m.Region, Config: m.config, Why: why,
		Volume: &VolumeWant{Name: name, SizeGB: size, Fork: mount.Volume},
	}, after...)
	after = []int{fork}
	target := b.target(mv, &fork, why, &after)
	if !m.down() || m.paused() {
		after = []int{b.await(target(AwaitReady), pace.Smoke, after...)}
	}
	after = b.adopt(mv, target, after)
	b.discard(mv, why, after)
	return after
}

// target makes the machine, unless it is there, and returns what makes steps about it.
func (b *builder) target(mv *move, fork *int, why string, after *[]int) func(Act) Step {
	if mv.to != nil {
		mv.made = on(mv.to, "", why)
		return func(do Act) Step { return on(mv.to, do, why) }
	}
	m := mv.from
	c := *m.config
	c.Metadata = maps.Clone(c.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	delete(c.Metadata, KeyPaused)
	c.Metadata[KeyReplaces] = string(m.ID)
	s := Step{Do: MakeMachine, Group: m.group, In: m.Region, Config: &c, Hidden: true, Stopped: m.down() && !m.paused(), VolumeOf: fork, Why: why}
	if fork != nil {
		mount := c.Mounts[0]
		mount.Volume, mount.Encrypted = "", false
		c.Mounts = []bourse.Mount{mount}
	}
	if m.standby() {
		*after = append(slices.Clone(*after), b.twinned(mv, &s)...)
	}
	id := b.add(s, *after...)
	*after, mv.made = []int{id}, b.of(id, "", why)
	return func(do Act) Step { return b.of(id, do, why) }
}

// goes reports whether the move takes a machine away.
func (mv *move) goes(id bourse.MachineID) bool {
	return id == mv.from.ID || slices.ContainsFunc(mv.stale, func(m *machine) bool { return m.ID == id })
}

// twinned lets the machine that s makes stand by for those that are made in place of its
// twins, and returns the steps which make them; and for those that were made before.
func (b *builder) twinned(mv *move, s *Step) []int {
	ids := slices.Clone(s.Config.Standbys)
	for i, id := range ids {
		if b.survey.machines[id] == nil {
			ids[i] = cmp.Or(b.survey.heir(id), id)
		}
	}
	var after []int
	for _, twin := range mv.twins {
		ids = slices.DeleteFunc(ids, twin.goes)
		switch made := twin.made; {
		case made.Of == nil && made.Machine != "":
			if !slices.Contains(ids, made.Machine) {
				ids = append(ids, made.Machine)
			}
		case made.Of != nil && s.StandbyOf == nil:
			s.StandbyOf, after = made.Of, []int{*made.Of}
		}
	}
	s.Config.Standbys = ids
	return after
}

// renew lets a spare that a plan which did not end has made stand by for what this one makes.
// What it stands by for may be gone: the list of the machine that it replaces says of whom it
// is the spare.
func (b *builder) renew(mv *move, after []int) []int {
	if mv.to == nil || !mv.from.standby() {
		return after
	}
	s := b.spareStep(mv.to, "it stands by for a machine that is made again")
	s.Config.Standbys = mv.from.config.Standbys
	made := b.twinned(mv, &s)
	if s.StandbyOf == nil && slices.Equal(s.Config.Standbys, mv.to.config.Standbys) {
		return after
	}
	return []int{b.add(s, append(slices.Clone(after), made...)...)}
}

// spareStep updates a spare to a copy of its config, which its caller changes.
func (b *builder) spareStep(spare *machine, why string) Step {
	c := *spare.config
	s := on(spare, UpdateMachine, why)
	s.Config, s.Former, s.Instance, s.Stopped, s.Hidden = &c, spare.Config, spare.InstanceID, spare.down(), spare.Cordoned
	return s
}

// adopt lets the new machine serve, and spares stand by for it.
func (b *builder) adopt(mv *move, target func(Act) Step, after []int) []int {
	m := mv.from
	if !m.Cordoned || m.paused() {
		after = []int{b.add(target(UncordonMachine), after...)}
		after = []int{b.add(Step{Do: AwaitProxies, Group: m.group, In: m.Region, Why: "the new machine is served"}, after...)}
	}
	var ends []int
	for _, spare := range mv.spares {
		s := b.spareStep(spare, fmt.Sprintf("it stands by for machine %s, which is made again", m))
		ids := slices.Clone(spare.config.Standbys)
		for _, gone := range append(mv.beside, mv) {
			ids = slices.DeleteFunc(ids, gone.goes)
		}
		if t := target(""); t.Of != nil {
			s.StandbyOf = t.Of
		} else if !slices.Contains(ids, t.Machine) {
			ids = append(ids, t.Machine)
		}
		s.Config.Standbys = ids
		if s.StandbyOf != nil || !slices.Equal(s.Config.Standbys, spare.config.Standbys) {
			ends = append(ends, b.add(s, after...))
		}
	}
	if len(ends) == 0 {
		return after
	}
	return ends
}

// discard destroys what has moved, its volume last, and what earlier plans left.
func (b *builder) discard(mv *move, why string, after []int) {
	var stale []int
	for _, m := range mv.stale {
		if !m.lost() {
			stale = append(stale, b.add(b.destroy(retire{m, "left by a plan that did not end"}), slices.Concat(after, stale)...))
			b.leave(m)
		}
	}
	after = append(slices.Clone(after), stale...)
	gone := b.add(b.destroy(retire{mv.from, why}), after...)
	for _, mount := range mv.from.config.Mounts {
		s := on(mv.from, DestroyVolume, "its fork has its place")
		s.Machine, s.Name, s.VolumeID = "", "", mount.Volume
		b.add(s, gone)
	}
}
