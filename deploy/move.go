package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// MoveOptions configures how machines are moved. The zero value is valid.
type MoveOptions struct {
	Region      bourse.Region   // target region; "" means that each machine stays in its region
	To          bourse.WorkerID // target worker, which must be in Region; "" means that the exchange chooses one
	Concurrency int             // maximum number of a group's machines that are moved at a time; default 8
	// Downtime permits moving a machine with a volume even if too few other machines in its group can serve while the
	// volume is copied.
	Downtime bool
	Why      string // reason to show to users, such as "worker a is drained"
}

const defaultMoveConcurrency = 8

// Moves is the result of [PlanMoves].
type Moves struct {
	Plan      Plan               // plan that moves the machines in Moved
	Moved     []bourse.MachineID // machines that the plan moves
	Later     []bourse.MachineID // machines with volumes, which must be moved by a later plan
	Unmovable []Unmovable
}

// Unmovable is a machine that cannot be moved.
type Unmovable struct {
	Machine bourse.MachineID
	Name    string
	Why     string
}

// PlanMoves plans the moves of the given machines, except those that cannot be moved. If any of them have no volumes,
// the plan moves only these, and those with volumes must be moved later. Otherwise, the plan moves the machines with
// volumes, one at a time.
func PlanMoves(state *State, ids []bourse.MachineID, opts MoveOptions) Moves {
	var out Moves
	var pinned []bourse.MachineID
	for i := range state.Machines {
		m := &state.Machines[i]
		if !slices.Contains(ids, m.ID) {
			continue
		}
		if why := whyUnmovable(state, m, &opts); why != "" {
			out.Unmovable = append(out.Unmovable, Unmovable{m.ID, m.Name, why})
		} else if len(m.Config.Mounts) > 0 {
			pinned = append(pinned, m.ID)
		} else {
			out.Moved = append(out.Moved, m.ID)
		}
	}
	if out.Later = pinned; len(out.Moved) == 0 {
		out.Moved, out.Later, opts.Concurrency = pinned, nil, 1
	}
	if len(out.Moved) > 0 {
		out.Plan = Move(*state, out.Moved, opts)
	}
	return out
}

// MachineOf returns the machine that a step helps to move, or "" if the step is not part
// of a single machine's move.
func (m *Moves) MachineOf(step int) bourse.MachineID {
	s := &m.Plan.Steps[step]
	if s.MadeBy != nil {
		return m.MachineOf(*s.MadeBy)
	}
	switch do := s.Do.(type) {
	case MakeMachine:
		return s.Replaces()
	case MakeVolume:
		for i := range m.Plan.Steps {
			if x, ok := m.Plan.Steps[i].Do.(MakeMachine); ok && x.Volume != nil && *x.Volume == step {
				return m.MachineOf(i)
			}
		}
		return ""
	case UpdateMachine: // update of a standby
		if do.StandbyOf != nil {
			return m.MachineOf(*do.StandbyOf)
		}
	}
	return s.Machine
}

// whyUnmovable returns the reason why a machine cannot be moved, or "" if it can.
func whyUnmovable(state *State, m *machinesapi.Machine, opts *MoveOptions) string {
	config := m.Config
	switch {
	case opts.To != "" && m.Worker == opts.To:
		return "it is already on worker " + string(opts.To)
	case opts.To != "" && m.State != bourse.StateStarted && config != nil && len(config.Mounts) == 0:
		return fmt.Sprintf("it is %s, and only running machines can be moved to a given worker: start it, or leave out the worker", m.State)
	case m.HostStatus != "" && m.HostStatus != machinesapi.HostOK || config == nil:
		return "its worker does not answer"
	case !slices.Contains([]bourse.State{bourse.StateStarted, bourse.StateStopped, bourse.StateSuspended, bourse.StateCreated}, m.State):
		return fmt.Sprintf("it is %s: try again once it is not", m.State)
	case len(config.Mounts) > 1:
		return fmt.Sprintf("it has %d volumes", len(config.Mounts))
	case config.ImageKind() == bourse.PollerImage:
		return "it runs on a host that polls a gateway"
	case m.State == bourse.StateStarted && (config.AutoDestroy || config.RestartPolicy().Policy == bourse.RestartNo && !serves(config)):
		return "it runs until it exits, and would start over: wait for it, or destroy it"
	case len(config.Mounts) > 0 && isServing(m) && !opts.Downtime:
		if need, others := needed(config), othersServing(state, m); others < need {
			return fmt.Sprintf("its group would serve with %d machines while its volume is copied, and needs %d: add one, or allow downtime", others, need)
		}
	}
	return ""
}

// othersServing counts the machines of m's group, other than m, that are serving.
func othersServing(state *State, m *machinesapi.Machine) int {
	n := 0
	for i := range state.Machines {
		o := &state.Machines[i]
		if o.ID != m.ID && o.Config != nil && isServing(o) && GroupOf(o.Config) == GroupOf(m.Config) {
			n++
		}
	}
	return n
}

// services returns the services in c that have external ports.
func services(c *bourse.Config) []workload.Service {
	return slices.DeleteFunc(workload.Services(c), func(s workload.Service) bool { return len(s.Ports) == 0 })
}

func serves(c *bourse.Config) bool { return len(services(c)) > 0 }

// isServing reports whether proxies currently send requests to m.
func isServing(m *machinesapi.Machine) bool {
	return m.State == bourse.StateStarted && !m.Cordoned && serves(m.Config) &&
		!slices.ContainsFunc(m.Checks, func(c bourse.CheckStatus) bool { return c.Status == bourse.CheckCritical })
}

// needed returns the minimum number of machines with config c that must be serving at any
// time.
func needed(c *bourse.Config) int {
	n := 1
	for _, s := range services(c) {
		n = max(n, s.MinRunning)
	}
	return n
}

// mover plans moves.
type mover struct {
	*builder
	opts MoveOptions
}

// Move returns a plan that replaces machines with copies on other workers. It moves a few machines at a time, and
// destroys each machine once its copy serves. A machine with a volume is stopped while its volume is forked, so that
// no writes are lost. If neither Region nor To is set, the machines' workers must be cordoned, because a copy could
// otherwise be placed on the same worker.
func Move(have State, ids []bourse.MachineID, opts MoveOptions) Plan {
	if opts.Concurrency < 1 {
		opts.Concurrency = defaultMoveConcurrency
	}
	opts.Why = cmp.Or(opts.Why, "it moves to another worker")
	s := newSurvey(&have, true)
	b := &mover{newBuilder("move", have.App, s, Options{}, 0), opts}
	if len(ids) == 0 {
		b.refuse("no machine is specified")
	}
	for _, id := range ids {
		if s.machines[id] == nil {
			b.refuse("the app has no machine %s", bourse.Quoted(string(id)))
		}
	}
	for _, group := range sortedKeys(s.units) {
		b.moveGroup(s.units[group], ids)
	}
	return b.plan
}

// move describes how one machine moves to another worker.
type move struct {
	from        *machine
	to          *machine   // replacement created by an unfinished plan, or nil
	stale       []*machine // unusable replacements created by unfinished plans
	standbys    []*machine // standbys for from or its replacements, except those that are moved, too
	primaries   []*move    // if from is a standby: the moves of its primaries
	sameStandby []*move    // moves of other machines with the same standby, which is updated only once
	creation    Step       // its Machine or MadeBy field identifies the replacement
}

func (b *mover) moveGroup(units []*unit, ids []bourse.MachineID) {
	var moves []*move
	running := 0
	for _, u := range units {
		if !u.root.down() {
			running++
		}
		if !slices.Contains(ids, u.root.ID) {
			continue
		}
		if mv := b.movable(u); mv != nil {
			mv.standbys = standbysOf(units, u)
			moves = append(moves, mv)
		}
	}
	slices.SortStableFunc(moves, func(a, b *move) int { return compareBools(a.from.standby(), b.from.standby()) })
	b.orderStandbys(moves)
	addRolling(len(moves), unavailable(float64(b.opts.Concurrency), running), nil, func(i int, after []int) []int {
		if moves[i].to == nil && len(moves[i].from.config.Mounts) > 0 {
			return b.moveVolume(moves[i], after)
		}
		return b.moveMachine(moves[i], after)
	})
}

// orderStandbys assigns each standby to a single move, so that the standby is changed only once. A standby that is
// itself moved is replaced after its primaries.
func (b *mover) orderStandbys(moves []*move) {
	changed := map[*machine]*move{}
	for _, mv := range moves {
		mv.standbys = slices.DeleteFunc(mv.standbys, func(spare *machine) bool {
			i := slices.IndexFunc(moves, func(other *move) bool { return other.from == spare })
			switch {
			case i >= 0:
				moves[i].primaries = append(moves[i].primaries, mv)
			case changed[spare] != nil:
				b.warn("machine %s will no longer stand by for the replacement of machine %s: deploy to restore that", spare, mv.from)
				changed[spare].sameStandby = append(changed[spare].sameStandby, mv)
			default:
				changed[spare] = mv
				return false
			}
			return true
		})
	}
}

// standbysOf returns the standbys for the machines in unit u. These include standbys for u's replacements: an
// interrupted plan may have created a replacement that is now the primary of a standby, and that the current plan
// destroys.
func standbysOf(units []*unit, u *unit) []*machine {
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

// movable plans the move of unit u. If u cannot be moved, movable returns nil and adds the reason to the plan's
// refusals.
func (b *mover) movable(u *unit) *move {
	m := u.root
	mv := &move{from: m}
	for _, n := range u.next {
		switch usable := b.usable(m, n); {
		case mv.to == nil && usable && b.onTarget(n):
			mv.to = n
			continue
		case mv.to == nil && usable && len(m.config.Mounts) > 0 && n.Starts > 0 && !n.Cordoned:
			b.refuse("machine %s in %s cannot be moved there: its replacement %s on worker %s has newer data; finish that move without a target, then move the replacement", m, m.Region, n, n.Worker)
		}
		mv.stale = append(mv.stale, n)
	}
	switch c := m.config; {
	case m.lost():
		b.refuse("machine %s in %s cannot be moved: its worker does not answer", m, m.Region)
	case c.AutoDestroy && c.RestartPolicy().Policy == bourse.RestartNo && !m.down():
		b.refuse("machine %s in %s cannot be moved: it runs until it exits, and a copy would do its work twice; wait for it, or stop it", m, m.Region)
	case c.ImageKind() == bourse.PollerImage:
		b.refuse("machine %s in %s cannot be moved: it runs on a host that polls a gateway", m, m.Region)
	default:
		return mv
	}
	return nil
}

// usable reports whether n, which an unfinished plan created, can be used as m's replacement.
func (b *mover) usable(m, n *machine) bool {
	return !n.lost() && n.Worker != m.Worker && n.State != bourse.StateFailed && b.sameConfig(m, n) &&
		(len(m.config.Mounts) == 0 || m.copiedTo(n))
}

// onTarget reports whether a machine is on the target worker and in the target region.
func (b *mover) onTarget(n *machine) bool {
	return (b.opts.To == "" || n.Worker == b.opts.To) && (b.opts.Region == "" || n.Region == b.opts.Region)
}

// sameConfig reports whether two machines differ only in their volumes, their standbys and
// their metadata.
func (b *mover) sameConfig(m, n *machine) bool {
	same := func(a, b bourse.Mount) bool { return a.Path == b.Path }
	return len(b.compare.differences(m.config, n.config, "", "")) == 0 && slices.EqualFunc(m.config.Mounts, n.config.Mounts, same)
}

func (b *mover) proxies(m *machine, why string) Step {
	return Step{Do: AwaitProxies{}, Group: m.group, Region: m.Region, Why: why}
}

// moveMachine adds the steps that create a replacement, and destroy the machine once the replacement serves.
func (b *mover) moveMachine(mv *move, after []int) []int {
	m := mv.from
	target := b.target(mv, nil, &after)
	if !m.down() || m.paused() {
		if mv.to != nil && mv.to.down() { // another plan was about to remove the replacement, and was interrupted
			after = []int{b.add(target(StartMachine{}), after...)}
		}
		after = []int{b.add(target(b.ready(true)), after...)}
	}
	after = b.renew(mv, after)
	if mv.to != nil && mv.to.paused() {
		after = []int{b.add(pause(mv.to, false, "it is no longer paused"), after...)}
	}
	after = b.adopt(mv, target, after)
	if !m.down() {
		after = []int{b.add(pause(m, true, b.opts.Why), after...)}
		if m.serves() {
			after = []int{b.add(stepOn(m, CordonMachine{}, b.opts.Why), after...)}
		}
		after = []int{b.add(b.proxies(m, "proxies no longer use it"), after...)}
		after = []int{b.add(stepOn(m, StopMachine{}, b.opts.Why), after...)}
	}
	b.discard(mv, after)
	return after
}

// moveVolume adds the steps that stop a machine, fork its volume, and create a replacement that mounts the fork.
func (b *mover) moveVolume(mv *move, after []int) []int {
	m := mv.from
	if !m.down() {
		after = []int{b.add(pause(m, true, b.opts.Why), after...)}
		if m.serves() {
			after = []int{b.add(stepOn(m, CordonMachine{}, b.opts.Why), after...)}
			after = []int{b.add(b.proxies(m, "proxies no longer use it"), after...)}
		}
		after = []int{b.add(stepOn(m, StopMachine{}, "nothing may write to its volume while it is forked"), after...)}
		b.warn("machine %s in %s does not serve while its volume %s is forked", m, m.Region, m.config.Mounts[0].Volume)
	}
	mount := m.config.Mounts[0]
	do := MakeVolume{Name: mount.Name, SizeGB: max(1, mount.SizeGB), Fork: mount.Volume, Machine: m.config, AnyWorker: true} // a small region may have no other worker
	if v := b.survey.known[mount.Volume]; v != nil {
		do.Name, do.SizeGB = v.Name, v.SizeGB
	}
	if b.opts.To != "" { // the volume determines where the machine is placed
		config := *m.config
		config.Requirements = config.Requirements.On(b.opts.To)
		do.Machine = &config
	}
	fork := b.add(Step{Do: do, Group: m.group, Region: cmp.Or(b.opts.Region, m.Region), Why: b.opts.Why}, after...)
	after = []int{fork}
	target := b.target(mv, &fork, &after)
	if !m.down() || m.paused() {
		after = []int{b.add(target(b.ready(true)), after...)}
	}
	after = b.adopt(mv, target, after)
	b.discard(mv, after)
	return after
}

// target adds the step that creates the replacement, unless the replacement already
// exists. It returns a function that builds steps that act on the replacement.
func (b *mover) target(mv *move, fork *int, after *[]int) func(Action) Step {
	why := b.opts.Why
	if mv.to != nil {
		mv.creation = stepOn(mv.to, nil, why)
		return func(do Action) Step { return stepOn(mv.to, do, why) }
	}
	m := mv.from
	c := *m.config
	c.Metadata = maps.Clone(c.Metadata)
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	delete(c.Metadata, KeyPaused)
	delete(c.Metadata, KeyCopies)
	c.Metadata[KeyReplaces] = string(m.ID)
	do := MakeMachine{Config: &c, Cordoned: true, Stopped: m.down() && !m.paused(), Volume: fork}
	if fork != nil {
		mount := c.Mounts[0]
		mount.Volume, mount.Encrypted = "", false
		c.Mounts = []bourse.Mount{mount}
		if m.State == bourse.StateStopped || !m.down() { // a suspended machine may resume and write to its volume without being started again
			c.Metadata[KeyCopies] = m.lastStart()
		}
	} else if b.opts.To != "" {
		do.Worker, b.plan.Reserve = b.opts.To, true
	}
	if m.standby() {
		c.Standbys, do.StandbyOf = b.primariesOf(mv, c.Standbys)
		if do.StandbyOf != nil {
			*after = append(slices.Clone(*after), *do.StandbyOf)
		}
	}
	id := b.add(Step{Do: do, Group: m.group, Region: cmp.Or(b.opts.Region, m.Region), Why: why}, *after...)
	*after, mv.creation = []int{id}, b.stepOnCreated(id, nil, why)
	return func(do Action) Step { return b.stepOnCreated(id, do, why) }
}

// destroys reports whether the move destroys the machine with this id.
func (mv *move) destroys(id bourse.MachineID) bool {
	return id == mv.from.ID || slices.ContainsFunc(mv.stale, func(m *machine) bool { return m.ID == id })
}

// primariesOf returns the primaries of a standby's replacement. standbys lists the primaries of the existing standby.
// If a primary is moved, or was moved earlier, ids contains its replacement instead. If this plan creates the
// replacement, its ID is not known yet; standbyOf is then the ID of the step that creates it.
func (b *mover) primariesOf(mv *move, standbys []bourse.MachineID) (ids []bourse.MachineID, standbyOf *int) {
	ids = slices.Clone(standbys)
	for i, id := range ids {
		if b.survey.machines[id] == nil {
			ids[i] = cmp.Or(b.survey.replacementOf(id), id)
		}
	}
	for _, primary := range mv.primaries {
		ids = slices.DeleteFunc(ids, primary.destroys)
		switch made := primary.creation; {
		case made.Machine != "":
			if !slices.Contains(ids, made.Machine) {
				ids = append(ids, made.Machine)
			}
		case made.MadeBy != nil && standbyOf == nil:
			standbyOf = made.MadeBy
		}
	}
	return ids, standbyOf
}

// renew adds a step that updates the list of primaries of a standby's existing replacement. The new list includes the
// machines that this plan creates. It is based on the original standby's list, because the replacement's own list may
// name machines that no longer exist.
func (b *mover) renew(mv *move, after []int) []int {
	if mv.to == nil || !mv.from.standby() {
		return after
	}
	ids, standbyOf := b.primariesOf(mv, mv.from.config.Standbys)
	if standbyOf != nil {
		after = append(slices.Clone(after), *standbyOf)
	}
	return b.updateStandby(mv.to, ids, standbyOf, "the machine that it stands by for is replaced", after)
}

// updateStandby adds a step that updates a standby's list of primaries, unless the list is already correct. It
// returns the steps that later steps must wait for.
func (b *mover) updateStandby(spare *machine, ids []bourse.MachineID, standbyOf *int, why string, after []int) []int {
	if standbyOf == nil && slices.Equal(ids, spare.config.Standbys) {
		return after
	}
	c := *spare.config
	c.Standbys = ids
	return []int{b.add(stepOn(spare, UpdateMachine{
		Config: &c, Former: spare.Config, Instance: spare.InstanceID, Stopped: spare.down(), StandbyOf: standbyOf,
	}, why), after...)}
}

// adopt adds the steps that uncordon the replacement and make it the primary of the moved machine's standbys.
func (b *mover) adopt(mv *move, target func(Action) Step, after []int) []int {
	m := mv.from
	if !m.Cordoned || m.paused() {
		after = []int{b.add(target(UncordonMachine{}), after...)}
		after = []int{b.add(b.proxies(m, "proxies use the replacement"), after...)}
	}
	if len(mv.standbys) == 0 {
		return after
	}
	var ends []int
	for _, spare := range mv.standbys {
		ids := slices.Clone(spare.config.Standbys)
		for _, gone := range append(mv.sameStandby, mv) {
			ids = slices.DeleteFunc(ids, gone.destroys)
		}
		if id := mv.creation.Machine; id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
		ends = append(ends, b.updateStandby(spare, ids, mv.creation.MadeBy, fmt.Sprintf("machine %s, which it stands by for, is replaced", m), after)...)
	}
	return ends
}

// discard adds the steps that destroy the moved machine, its volumes, and the replacements left behind by unfinished
// plans.
func (b *mover) discard(mv *move, after []int) {
	var stale, cordons []int
	for _, m := range mv.stale {
		if m.serves() && serving(m.config) {
			cordons = append(cordons, b.add(stepOn(m, CordonMachine{}, "left by an unfinished plan"), after...))
		}
	}
	if len(cordons) > 0 {
		after = []int{b.add(b.proxies(mv.from, "proxies no longer use the replacements of unfinished plans"), cordons...)}
	}
	for _, m := range mv.stale {
		if !m.lost() {
			stale = append(stale, b.add(destroy(m, "left by an unfinished plan"), slices.Concat(after, stale)...))
			b.warnVolumes(m)
		}
	}
	after = append(slices.Clone(after), stale...)
	m := mv.from
	gone := b.add(destroy(m, b.opts.Why), after...)
	for _, mount := range m.config.Mounts {
		b.add(Step{Do: DestroyVolume{mount.Volume}, Group: m.group, Region: m.Region, Why: "its fork replaces it"}, gone)
	}
}
