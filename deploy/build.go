package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// builder makes a plan, step by step.
type builder struct {
	plan    Plan
	opts    Options
	wait    bourse.Duration
	compare *comparer
	survey  *survey

	begin     []int // what comes before everything
	uncordons []uncordon
	retires   []retire
	marked    map[bourse.MachineID]bool // machines of retires
}

// uncordon is a machine that is to be served once all others are ready.
type uncordon struct {
	machine *machine // or
	of      *int     // of a machine that the plan makes
	step    Step     // what to print of it
}

// retire is a machine that goes at the end.
type retire struct {
	machine *machine
	why     string
}

func newBuilder(what string, app bourse.AppName, s *survey, opts Options, wait bourse.Duration) *builder {
	return &builder{
		plan: Plan{App: app, Release: opts.Release, What: what, Seen: seen(s)}, opts: opts, wait: wait, compare: newComparer(), survey: s,
		marked: map[bourse.MachineID]bool{},
	}
}

// add adds a step, which may begin after others, and returns its ID.
func (b *builder) add(s Step, after ...int) int {
	s.ID = len(b.plan.Steps)
	s.After = slices.Compact(slices.Sorted(slices.Values(after)))
	if len(s.After) == 0 {
		s.After = nil
	}
	b.plan.Steps = append(b.plan.Steps, s)
	return s.ID
}

// on returns a step that is done to a machine which is there.
func on(m *machine, do Act, why string) Step {
	return Step{Do: do, Group: m.group, In: m.Region, Machine: m.ID, Name: m.Name, Why: why}
}

// of returns a step that is done to the machine which step id makes.
func (b *builder) of(id int, do Act, why string) Step {
	made := &b.plan.Steps[id]
	return Step{Do: do, Group: made.Group, In: made.In, Of: &id, Why: why}
}

func (b *builder) await(s Step, smoke bool, after ...int) int {
	s.Do, s.Wait, s.Smoke = AwaitReady, b.wait, smoke
	return b.add(s, after...)
}

func (b *builder) warn(format string, args ...any) {
	b.plan.Warnings = append(b.plan.Warnings, fmt.Sprintf(format, args...))
}

func (b *builder) refuse(format string, args ...any) {
	b.plan.Refused = append(b.plan.Refused, fmt.Sprintf(format, args...))
}

// retire says that m goes at the end, unless its worker does not answer.
func (b *builder) retire(m *machine, why string) {
	switch {
	case b.marked[m.ID]:
	case m.lost():
		b.warn("machine %s in %s is to be destroyed (%s), and its worker does not answer: plan again once it does", m, m.Region, why)
	default:
		b.marked[m.ID] = true
		b.retires = append(b.retires, retire{m, why})
		b.leave(m)
	}
}

// leave says that what is on the volumes of a machine which goes is kept.
func (b *builder) leave(m *machine) {
	for _, mount := range m.config.Mounts {
		b.warn("volume %s of machine %s stays: destroy it once its data is not needed", mount.Volume, m)
	}
}

// roll changes machines of one group, at most n at a time, and the first one alone.
// change adds what is done to one after other steps, and returns those after which
// the next may begin.
func roll(count, n int, begin []int, change func(i int, after []int) []int) {
	ended := make([][]int, count)
	for i := range count {
		after := begin
		if i > 0 {
			after = ended[max(0, i-n)]
		}
		ended[i] = change(i, after)
	}
}

// unavailable returns how many of count machines may be unavailable at a time.
func unavailable(limit float64, count int) int {
	const usual = 0.33
	if limit <= 0 || math.IsNaN(limit) {
		limit = usual
	}
	if limit < 1 {
		limit = math.Ceil(limit * float64(count))
	}
	return int(max(1, min(limit, float64(max(1, count)))))
}

// finish ends the plan: once everything else has ended well, what was hidden is
// served, and then what is to go is served no more, stopped and destroyed. Nothing
// that serves is taken away before its successor serves.
func (b *builder) finish() {
	before := b.serve(b.leaves())
	before = b.withdraw(before)
	slices.SortStableFunc(b.retires, func(x, y retire) int { return b.depth(y.machine) - b.depth(x.machine) })
	gone := map[bourse.MachineID][]int{} // by what they were to replace
	for _, r := range b.retires {
		after := before
		if !r.machine.down() {
			after = []int{b.add(on(r.machine, StopMachine, r.why), before...)}
		}
		after = append(slices.Clone(after), gone[r.machine.ID]...)
		to := r.machine.replaces()
		gone[to] = append(gone[to], b.add(b.destroy(r), after...))
	}
}

// depth returns how many machines lead from m to one that replaces none: those that were
// to replace another go before that, after which they would count for themselves.
func (b *builder) depth(m *machine) int {
	for n := range len(b.survey.machines) {
		next := b.survey.machines[m.replaces()]
		if next == nil {
			return n
		}
		m = next
	}
	return 0
}

// withdraw ends the service of what goes, and returns what its end comes after. Each
// such machine is marked before, so that one which stays after all is known.
func (b *builder) withdraw(before []int) []int {
	var marks []Step
	var running []retire
	for _, r := range b.retires {
		if !r.machine.down() {
			running = append(running, r)
			marks = append(marks, paused(r.machine, true, r.why))
		}
	}
	if len(running) == 0 {
		if len(before)*len(b.retires) > few*few {
			before = []int{b.add(Step{Do: AwaitProxies, Why: "everything else is done"}, before...)}
		}
		return before
	}
	ids := b.together(marks, before)
	for i, r := range running {
		if r.machine.serves() && serving(r.machine.config) {
			ids[i] = b.add(on(r.machine, CordonMachine, r.why), ids[i])
		}
	}
	return []int{b.add(Step{Do: AwaitProxies, Why: "what is stopped next is served no more"}, ids...)}
}

// paused is the step that marks a machine as taken away by a plan, or takes the mark off.
func paused(m *machine, mark bool, why string) Step {
	s := on(m, SetMetadata, why)
	value := ""
	if mark {
		value = "true"
	}
	s.Config = &bourse.Config{Metadata: map[string]string{KeyPaused: value}}
	s.Former = &bourse.Config{Metadata: map[string]string{KeyPaused: m.config.Metadata[KeyPaused]}}
	return s
}

// few is how many steps all wait for all of as many others.
const few = 8

func (b *builder) destroy(r retire) Step {
	s := on(r.machine, DestroyMachine, r.why)
	s.Former = r.machine.Config
	return s
}

// leaves returns the steps that no other comes after.
func (b *builder) leaves() []int {
	inner := make([]bool, len(b.plan.Steps))
	for _, s := range b.plan.Steps {
		for _, id := range s.After {
			inner[id] = true
		}
	}
	var out []int
	for id := range inner {
		if !inner[id] {
			out = append(out, id)
		}
	}
	return out
}

// serve uncordons what was hidden, and returns what comes next after it.
func (b *builder) serve(before []int) []int {
	if len(b.uncordons) == 0 {
		return before
	}
	steps := make([]Step, len(b.uncordons))
	for i, u := range b.uncordons {
		steps[i] = u.step
	}
	ids := b.together(steps, before)
	heard := b.add(Step{Do: AwaitProxies, Why: "the machines that were made are served"}, ids...)
	out := []int{heard}
	for _, u := range b.uncordons {
		if u.machine == nil || !u.machine.paused() {
			continue
		}
		out = append(out, b.add(paused(u.machine, false, "it is no longer paused"), heard))
	}
	return out
}

// together adds steps that begin after all others, and returns what the next come
// after. Where there are many of both the first goes before the rest, so that
// the plan has no edge for each pair.
func (b *builder) together(steps []Step, before []int) []int {
	if len(steps) == 0 {
		return before
	}
	var ids []int
	for i, s := range steps {
		after := before
		if i > 0 && len(before) > few {
			after = ids[:1]
		}
		ids = append(ids, b.add(s, after...))
	}
	return ids
}

// serving reports whether machines of c have services.
func serving(c *bourse.Config) bool { return !empty(c.Services) }

// stamped returns metadata of a machine of a group, with the keys of plans.
func (b *builder) stamped(group string, given ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range given {
		maps.Copy(out, m)
	}
	for _, key := range []string{KeyCanary, KeyReplaces} {
		delete(out, key)
	}
	out[KeyPlatform], out[KeyGroup] = Platform, group
	if b.opts.Release != "" {
		out[KeyRelease] = string(b.opts.Release)
	}
	if b.opts.Version != 0 {
		out[KeyVersion] = strconv.FormatInt(b.opts.Version, 10)
	}
	return out
}

// placing is a machine to be made.
type placing struct {
	group    string
	config   *bourse.Config // without metadata of plans, and without the volume of its mount
	mount    *Mount
	in       bourse.Region
	replaces bourse.MachineID
	hidden   bool
	stopped  bool
	standby  *int // the step that makes the machine which it stands by for
	why      string
	metadata map[string]string // beside those of config
}

// make adds a machine, with a volume when it needs one, and returns its step.
func (b *builder) make(p placing, after ...int) int {
	config := *p.config
	config.Metadata = b.stamped(p.group, p.config.Metadata, p.metadata)
	delete(config.Metadata, KeyPaused)
	if p.replaces != "" {
		config.Metadata[KeyReplaces] = string(p.replaces)
	}
	s := Step{Do: MakeMachine, Group: p.group, In: p.in, Config: &config, Hidden: p.hidden, Stopped: p.stopped, StandbyOf: p.standby, Why: p.why}
	if p.mount != nil {
		mount := mountOf(p.config, p.mount)
		if v := b.survey.freeVolume(p.mount.Volume, p.in); v != nil {
			mount.Volume, s.In = v.ID, v.Region
		} else {
			id := b.add(Step{
				Do: MakeVolume, Group: p.group, In: p.in, Config: &config, Why: p.why,
				Volume: &VolumeWant{Name: p.mount.Volume, SizeGB: p.mount.SizeGB},
			}, after...)
			s.VolumeOf, after = &id, []int{id}
		}
		config.Mounts = []bourse.Mount{mount}
	}
	return b.add(s, after...)
}

// mountOf returns the mount of a machine without its volume. What the config has of it
// stays: how it grows.
func mountOf(c *bourse.Config, want *Mount) bourse.Mount {
	out := bourse.Mount{}
	if len(c.Mounts) > 0 {
		out = c.Mounts[0]
	}
	out.Volume, out.Name, out.Path = "", want.Volume, cmp.Or(want.Path, out.Path)
	return out
}
