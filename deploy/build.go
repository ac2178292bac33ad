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

// builder builds a plan.
type builder struct {
	plan    Plan
	opts    Options
	wait    bourse.Duration
	compare *comparer
	survey  *survey

	begin     []int // steps that all other steps wait for
	uncordons []uncordon
	retires   []retire
	marked    map[bourse.MachineID]bool // the machines in retires
}

// uncordon is a machine to uncordon once all machines are ready.
type uncordon struct {
	machine *machine // nil if the plan creates the machine
	step    Step
}

// retire is a machine to destroy at the end of the plan.
type retire struct {
	machine *machine
	why     string
}

func newBuilder(what string, app bourse.AppName, s *survey, opts Options, wait bourse.Duration) *builder {
	return &builder{
		plan: Plan{App: app, Release: opts.Release, What: what, Seen: seen(s), Steps: []Step{}}, opts: opts, wait: wait, compare: newComparer(), survey: s,
		marked: map[bourse.MachineID]bool{},
	}
}

// add appends a step that waits for the steps in after. It returns the step's ID.
func (b *builder) add(s Step, after ...int) int {
	s.ID = len(b.plan.Steps)
	s.After = slices.Compact(slices.Sorted(slices.Values(after)))
	if len(s.After) == 0 {
		s.After = nil
	}
	b.plan.Steps = append(b.plan.Steps, s)
	return s.ID
}

// stepOn returns a step that acts on an existing machine.
func stepOn(m *machine, do Action, why string) Step {
	return Step{Do: do, Group: m.group, Region: m.Region, Machine: m.ID, Name: m.Name, Why: why}
}

// stepOnCreated returns a step that acts on the machine created by the step with the given ID.
func (b *builder) stepOnCreated(id int, do Action, why string) Step {
	made := &b.plan.Steps[id]
	return Step{Do: do, Group: made.Group, Region: made.Region, MadeBy: &id, Why: why}
}

func (b *builder) ready(smoke bool) AwaitReady { return AwaitReady{Timeout: b.wait, Smoke: smoke} }

func (b *builder) warn(format string, args ...any) {
	b.plan.Warnings = append(b.plan.Warnings, fmt.Sprintf(format, args...))
}

func (b *builder) refuse(format string, args ...any) {
	b.plan.Refused = append(b.plan.Refused, fmt.Sprintf(format, args...))
}

// retire marks m for destruction at the end of the plan. If m's worker does not answer,
// retire adds a warning instead.
func (b *builder) retire(m *machine, why string) {
	switch {
	case b.marked[m.ID]:
	case m.lost():
		b.warn("machine %s in %s should be destroyed (%s), but its worker does not answer: deploy again once it does", m, m.Region, why)
	default:
		b.marked[m.ID] = true
		b.retires = append(b.retires, retire{m, why})
		b.warnVolumes(m)
	}
}

// warnVolumes warns that the volumes of a destroyed machine are kept.
func (b *builder) warnVolumes(m *machine) {
	for _, mount := range m.config.Mounts {
		b.warn("volume %s of machine %s is kept: destroy it once you no longer need its data", mount.Volume, m)
	}
}

// addRolling adds the steps that change a group of count machines: first one machine alone, and then at most n at a
// time. change(i, after) must add the steps for machine i so that they wait for the steps in after, and return the
// steps that later machines must wait for.
func addRolling(count, n int, begin []int, change func(i int, after []int) []int) {
	ended := make([][]int, count)
	for i := range count {
		after := begin
		if i > 0 {
			after = ended[max(0, i-n)]
		}
		ended[i] = change(i, after)
	}
}

// unavailable returns how many of count machines may be unavailable at a time. limit is a number of machines, or a
// fraction of count if it is less than 1.
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

// finish adds the plan's last steps, which first uncordon the new machines, and then cordon, stop and destroy the
// retired ones. A machine therefore stops serving only after its replacement has started to serve.
func (b *builder) finish() {
	before := b.uncordonAll(b.leaves())
	before = b.cordonRetired(before)
	slices.SortStableFunc(b.retires, func(x, y retire) int { return b.depth(y.machine) - b.depth(x.machine) })
	gone := map[bourse.MachineID][]int{} // steps that destroy replacements, keyed by the machine that was replaced
	for _, r := range b.retires {
		after := before
		if !r.machine.down() {
			after = []int{b.add(stepOn(r.machine, StopMachine{}, r.why), before...)}
		}
		after = append(slices.Clone(after), gone[r.machine.ID]...)
		to := r.machine.replaces()
		gone[to] = append(gone[to], b.add(destroy(r.machine, r.why), after...))
	}
}

// depth returns the number of existing machines that m replaces, directly or indirectly. A replacement must be
// destroyed before the machine that it replaces. Otherwise, if the plan were interrupted in between, later plans would
// count the replacement as an additional machine.
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

// cordonRetired adds the steps that mark the retired machines as paused and cordon them. It returns the steps after
// which the machines may be stopped. If the plan is interrupted, a later plan finds the marks and puts the machines
// back into service.
func (b *builder) cordonRetired(before []int) []int {
	var marks []Step
	var running []retire
	for _, r := range b.retires {
		if !r.machine.down() {
			running = append(running, r)
			marks = append(marks, pause(r.machine, true, r.why))
		}
	}
	if len(running) == 0 {
		if len(before)*len(b.retires) > maxSharedDeps*maxSharedDeps {
			before = []int{b.add(Step{Do: AwaitProxies{}, Why: "everything else is done"}, before...)}
		}
		return before
	}
	ids := b.addParallel(marks, before)
	for i, r := range running {
		if r.machine.serves() && serving(r.machine.config) {
			ids[i] = b.add(stepOn(r.machine, CordonMachine{}, r.why), ids[i])
		}
	}
	return []int{b.add(Step{Do: AwaitProxies{}, Why: "proxies no longer use the machines that are stopped next"}, ids...)}
}

// pause returns the step that sets KeyPaused in a machine's metadata, or removes it if mark is false.
func pause(m *machine, mark bool, why string) Step {
	value := ""
	if mark {
		value = "true"
	}
	return stepOn(m, SetMetadata{
		Metadata: map[string]string{KeyPaused: value}, Former: map[string]string{KeyPaused: m.config.Metadata[KeyPaused]},
	}, why)
}

// maxSharedDeps is the maximum number of dependencies that several steps may share directly. If they share more, they
// wait for a single intermediate step instead, which keeps the plan small.
const maxSharedDeps = 8

// destroy returns the step that destroys a machine.
func destroy(m *machine, why string) Step {
	var volumes []bourse.VolumeID
	for _, mount := range m.config.Mounts {
		volumes = append(volumes, mount.Volume)
	}
	return stepOn(m, DestroyMachine{volumes}, why)
}

// leaves returns the steps that no other step waits for.
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

// uncordonAll adds the steps that uncordon the machines in b.uncordons. It returns the steps that later steps must
// wait for.
func (b *builder) uncordonAll(before []int) []int {
	if len(b.uncordons) == 0 {
		return before
	}
	steps := make([]Step, len(b.uncordons))
	for i, u := range b.uncordons {
		steps[i] = u.step
	}
	ids := b.addParallel(steps, before)
	heard := b.add(Step{Do: AwaitProxies{}, Why: "proxies use the new machines"}, ids...)
	out := []int{heard}
	for _, u := range b.uncordons {
		if u.machine != nil && u.machine.paused() {
			out = append(out, b.add(pause(u.machine, false, "it is no longer paused"), heard))
		}
	}
	return out
}

// addParallel adds steps that all wait for the steps in before. It returns the steps that later steps must wait for.
// If before is long, only the first new step waits for the steps in before, and the other new steps wait for the
// first. This keeps the number of dependencies small.
func (b *builder) addParallel(steps []Step, before []int) []int {
	if len(steps) == 0 {
		return before
	}
	var ids []int
	for i, s := range steps {
		after := before
		if i > 0 && len(before) > maxSharedDeps {
			after = ids[:1]
		}
		ids = append(ids, b.add(s, after...))
	}
	return ids
}

// serving reports whether machines with config c have services.
func serving(c *bourse.Config) bool { return !empty(c.Services) }

// metadata returns the metadata for a machine in a group. It merges the given maps, and then sets or removes the keys
// that only plans may set.
func (b *builder) metadata(group string, given ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range given {
		maps.Copy(out, m)
	}
	for _, key := range []string{KeyCanary, KeyReplaces, KeyCopies} {
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

// placing describes a machine to create.
type placing struct {
	group     string
	config    *bourse.Config // without the metadata that plans set, and without the ID of the mounted volume
	mount     *Mount
	region    bourse.Region
	replaces  bourse.MachineID
	canary    bool
	cordoned  bool
	stopped   bool
	standbyOf *int // if the machine is a standby, the step that creates its primary; otherwise nil
	why       string
	metadata  map[string]string // additional metadata; takes precedence over the config's metadata
}

// make adds the step that creates a machine and, if necessary, a step that creates its volume. It returns the ID of the
// step that creates the machine.
func (b *builder) make(p placing, after ...int) int {
	config := *p.config
	config.Metadata = b.metadata(p.group, p.config.Metadata, p.metadata)
	delete(config.Metadata, KeyPaused)
	if p.replaces != "" {
		config.Metadata[KeyReplaces] = string(p.replaces)
	}
	if p.canary {
		config.Metadata[KeyCanary] = "true"
	}
	do := MakeMachine{Config: &config, Cordoned: p.cordoned, Stopped: p.stopped, StandbyOf: p.standbyOf}
	s := Step{Group: p.group, Region: p.region, Why: p.why}
	if p.mount != nil {
		mount := mountOf(p.config, p.mount)
		if v := b.survey.freeVolume(p.mount.Volume, p.region); v != nil {
			mount.Volume, s.Region = v.ID, v.Region
		} else {
			volume := s
			volume.Do = MakeVolume{Name: p.mount.Volume, SizeGB: p.mount.SizeGB, Machine: &config}
			id := b.add(volume, after...)
			do.Volume, after = &id, []int{id}
		}
		config.Mounts = []bourse.Mount{mount}
	}
	s.Do = do
	return b.add(s, after...)
}

// mountOf returns the mount for a machine, without a volume ID. It preserves the config's
// settings for automatic growth.
func mountOf(c *bourse.Config, want *Mount) bourse.Mount {
	out := bourse.Mount{}
	if len(c.Mounts) > 0 {
		out = c.Mounts[0]
	}
	out.Volume, out.Name, out.Path = "", want.Volume, cmp.Or(want.Path, out.Path)
	return out
}
