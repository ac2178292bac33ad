package deploy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// world models an app's machines and volumes.
type world struct {
	t        fataler
	machines map[bourse.MachineID]*machinesapi.Machine
	volumes  map[bourse.VolumeID]*machinesapi.Volume
	versions map[bourse.MachineID][]machinesapi.Version
	written  map[bourse.VolumeID][]int // numbers of the writes that each volume contains
	app      deploy.App                // the app that was deployed
	made     int
	writes   int
	spread   bool // place each new machine on its own worker
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newWorld(t fataler) *world {
	return &world{
		t: t, machines: map[bourse.MachineID]*machinesapi.Machine{}, volumes: map[bourse.VolumeID]*machinesapi.Volume{},
		versions: map[bourse.MachineID][]machinesapi.Version{}, written: map[bourse.VolumeID][]int{},
	}
}

// state returns the world's state as the API would report it.
func (w *world) state() deploy.State {
	s := deploy.State{App: "shop", Versions: map[bourse.MachineID][]machinesapi.Version{}}
	for _, id := range slices.Sorted(maps.Keys(w.machines)) {
		m := *w.machines[id]
		config := *m.Config
		config.Metadata = maps.Clone(config.Metadata)
		guest := bourse.Guest{}
		if config.Guest != nil {
			guest = *config.Guest
		}
		guest = guest.WithDefaults()
		config.Guest = &guest
		m.Config = &config
		if m.HostStatus != machinesapi.HostOK {
			incomplete := config.Public()
			m.Config, m.IncompleteConfig = nil, &incomplete
		}
		s.Machines = append(s.Machines, m)
		s.Versions[id] = slices.Clone(w.versions[id])
	}
	for _, id := range slices.Sorted(maps.Keys(w.volumes)) {
		s.Volumes = append(s.Volumes, *w.volumes[id])
	}
	return s
}

func (w *world) add(c *bourse.Config, in bourse.Region, state bourse.State, cordoned bool) *machinesapi.Machine {
	w.made++
	m := &machinesapi.Machine{}
	m.ID = bourse.MachineID(fmt.Sprintf("%06x%08x", w.made%4+1, w.made))
	m.Name = fmt.Sprintf("m%d", w.made)
	m.State, m.Region, m.Cordoned, m.HostStatus = state, in, cordoned, machinesapi.HostOK
	m.Worker = bourse.WorkerID(fmt.Sprintf("w%d", w.made%4+1))
	if w.spread {
		m.Worker = bourse.WorkerID(fmt.Sprintf("w%d", w.made))
	}
	m.CreatedAt = fmt.Sprintf("2026-01-01T00:%02d:%02dZ", w.made/60, w.made%60)
	m.InstanceID = bourse.InstanceID(fmt.Sprintf("i%d", w.made))
	if m.Region == "" {
		m.Region = "fra"
	}
	m.Config = c
	w.machines[m.ID] = m
	w.versions[m.ID] = []machinesapi.Version{{Version: m.InstanceID, Config: c}}
	for _, mount := range c.Mounts {
		id := m.ID
		w.volumes[mount.Volume].Machine = &id
	}
	if state != bourse.StateStopped {
		m.Starts = 1
		w.write(m)
	}
	return m
}

// write simulates that a machine writes to its volume.
func (w *world) write(m *machinesapi.Machine) {
	for _, mount := range m.Config.Mounts {
		w.writes++
		w.written[mount.Volume] = append(w.written[mount.Volume], w.writes)
	}
}

// launch starts a machine, which then writes to its volume.
func (w *world) launch(m *machinesapi.Machine) {
	m.State = bourse.StateStarting
	m.Starts++
	w.write(m)
}

// halt stops a machine, which writes to its volume before it stops.
func (w *world) halt(m *machinesapi.Machine) {
	if m.State != bourse.StateStopped {
		w.write(m)
	}
	m.State = bourse.StateStopped
}

// destroyVolume destroys a volume. It returns an error unless a machine's volume contains all of the destroyed volume's
// writes.
func (w *world) destroyVolume(id bourse.VolumeID) error {
	lost := w.written[id]
	delete(w.volumes, id)
	delete(w.written, id)
	for other, v := range w.volumes {
		missing := func(write int) bool { return !slices.Contains(w.written[other], write) }
		if v.Machine != nil && !slices.ContainsFunc(lost, missing) {
			return nil
		}
	}
	return fmt.Errorf("volume %s is destroyed, but no machine has all of its data", id)
}

func (w *world) addVolume(name string, gb int64, in bourse.Region) bourse.VolumeID {
	w.made++
	v := &machinesapi.Volume{}
	v.ID = bourse.VolumeID(fmt.Sprintf("vol_%016d", w.made))
	v.Name, v.SizeGB, v.Region, v.State, v.HostStatus = name, gb, in, bourse.VolumeCreated, machinesapi.HostOK
	if v.Region == "" {
		v.Region = "fra"
	}
	w.volumes[v.ID] = v
	return v.ID
}

func (w *world) destroy(id bourse.MachineID) {
	delete(w.machines, id)
	for _, v := range w.volumes {
		if v.Machine != nil && *v.Machine == id {
			v.Machine = nil
		}
	}
}

// run is the execution of a plan in a world.
type run struct {
	w     *world
	plan  *deploy.Plan
	begun []bool
	ids   map[int]bourse.MachineID
	vols  map[int]bourse.VolumeID
}

func (w *world) start(p *deploy.Plan) *run {
	w.t.Helper()
	if len(p.Refused) > 0 {
		w.t.Fatalf("the plan is refused: %v", p.Refused)
	}
	if err := sound(p); err != nil {
		w.t.Fatalf("invalid plan: %v\n%s", err, dump(p))
	}
	return &run{w: w, plan: p, begun: make([]bool, len(p.Steps)), ids: map[int]bourse.MachineID{}, vols: map[int]bourse.VolumeID{}}
}

// runnable returns the steps that may begin now.
func (r *run) runnable() []int {
	var out []int
next:
	for i := range r.plan.Steps {
		if r.begun[i] {
			continue
		}
		for _, before := range r.plan.Steps[i].After {
			if !r.begun[before] {
				continue next
			}
		}
		out = append(out, i)
	}
	return out
}

func (r *run) machine(s *deploy.Step) *machinesapi.Machine {
	id := s.Machine
	if s.MadeBy != nil {
		id = r.ids[*s.MadeBy]
	}
	m := r.w.machines[id]
	if m == nil {
		r.w.t.Fatalf("step %d (%s): machine %q does not exist\n%s", s.ID, s.Do, id, dump(r.plan))
	}
	return m
}

// config returns the config that a step sets on a machine.
func (r *run) config(s *deploy.Step) *bourse.Config {
	var c bourse.Config
	var volumeOf, standbyOf *int
	switch do := s.Do.(type) {
	case deploy.MakeMachine:
		c, volumeOf, standbyOf = *do.Config, do.Volume, do.StandbyOf
	case deploy.UpdateMachine:
		c, standbyOf = *do.Config, do.StandbyOf
	}
	c.Metadata = maps.Clone(c.Metadata)
	if volumeOf != nil {
		c.Mounts = slices.Clone(c.Mounts)
		c.Mounts[0].Volume = r.vols[*volumeOf]
	}
	if standbyOf != nil {
		c.Standbys = append(slices.Clone(c.Standbys), r.ids[*standbyOf])
	}
	for i, mount := range c.Mounts {
		v := r.w.volumes[mount.Volume]
		if v == nil {
			r.w.t.Fatalf("step %d (%s): volume %q does not exist", s.ID, s.Do, mount.Volume)
		}
		c.Mounts = slices.Clone(c.Mounts)
		c.Mounts[i].Name, c.Mounts[i].SizeGB = v.Name, v.SizeGB
	}
	return &c
}

func (r *run) do(i int) {
	s := &r.plan.Steps[i]
	r.begun[i] = true
	w := r.w
	switch do := s.Do.(type) {
	case deploy.RunCommand, deploy.AwaitProxies:
	case deploy.MakeVolume:
		r.vols[i] = w.addVolume(do.Name, do.SizeGB, s.Region)
		w.written[r.vols[i]] = slices.Clone(w.written[do.Fork])
	case deploy.MakeMachine:
		state := bourse.StateStarting
		if do.Stopped {
			state = bourse.StateStopped
		}
		r.ids[i] = w.add(r.config(s), s.Region, state, do.Cordoned).ID
	case deploy.UpdateMachine:
		m := r.machine(s)
		if do.Instance != m.InstanceID {
			w.t.Fatalf("step %d: version %s, the machine has %s", i, do.Instance, m.InstanceID)
		}
		w.update(m, r.config(s), do.Stopped)
	case deploy.AwaitReady:
		m := r.machine(s)
		if m.State == bourse.StateStarting {
			m.State = bourse.StateStarted
		}
		if m.State != bourse.StateStarted {
			w.t.Fatalf("step %d: machine %s is %s and will never be ready\n%s", i, m.ID, m.State, dump(r.plan))
		}
	case deploy.RestartMachine, deploy.StartMachine:
		w.launch(r.machine(s))
	case deploy.UncordonMachine:
		r.machine(s).Cordoned = false
	case deploy.CordonMachine:
		r.machine(s).Cordoned = true
	case deploy.StopMachine:
		w.halt(r.machine(s))
	case deploy.SetMetadata:
		m := r.machine(s)
		for k, v := range do.Metadata {
			if v == "" {
				delete(m.Config.Metadata, k)
			} else {
				m.Config.Metadata[k] = v
			}
		}
	case deploy.DestroyMachine:
		w.destroy(r.machine(s).ID)
	case deploy.DestroyVolume:
		if err := w.destroyVolume(do.Volume); err != nil {
			w.t.Fatalf("step %d: %v\n%s", i, err, dump(r.plan))
		}
	default:
		w.t.Fatalf("step %d: unknown action %q", i, s.Do)
	}
}

func (w *world) update(m *machinesapi.Machine, c *bourse.Config, stopped bool) {
	w.made++
	w.halt(m)
	if m.Config, m.InstanceID = c, bourse.InstanceID(fmt.Sprintf("i%d", w.made)); !stopped {
		w.launch(m)
	}
	w.versions[m.ID] = append([]machinesapi.Version{{Version: m.InstanceID, Config: c}}, w.versions[m.ID]...)
}

// undo undoes the steps that the plan considers undoable. If unreachable is set, the
// machines and volumes that the plan created stay, as if their workers did not answer.
func (r *run) undo(unreachable bool) {
	for _, i := range r.plan.Undoable(r.begun) {
		s := &r.plan.Steps[i]
		switch do := s.Do.(type) {
		case deploy.MakeVolume:
			if !unreachable {
				delete(r.w.volumes, r.vols[i])
			}
		case deploy.MakeMachine:
			if !unreachable {
				r.w.destroy(r.ids[i])
			}
		case deploy.UpdateMachine:
			r.w.update(r.machine(s), do.Former, do.Stopped)
		case deploy.UncordonMachine:
			r.machine(s).Cordoned = true
		case deploy.CordonMachine:
			r.machine(s).Cordoned = false
		case deploy.StopMachine:
			r.w.launch(r.machine(s))
		case deploy.StartMachine:
			r.w.halt(r.machine(s))
		case deploy.SetMetadata:
			m := r.machine(s)
			for k := range do.Metadata {
				if v := do.Former[k]; v == "" {
					delete(m.Config.Metadata, k)
				} else {
					m.Config.Metadata[k] = v
				}
			}
		default:
			r.w.t.Fatalf("step %d: %q cannot be undone", i, s.Do)
		}
	}
}

// finish executes the remaining steps of a plan in order, and completes the starts of machines.
func (r *run) finish() {
	for i := range r.plan.Steps {
		if !r.begun[i] {
			r.do(i)
		}
	}
	r.w.settle()
}

func (w *world) settle() {
	for _, m := range w.machines {
		if m.State == bourse.StateStarting {
			m.State = bourse.StateStarted
		}
	}
}

// serving counts the machines of a group that receive requests. in limits it to a region;
// "" means all regions.
func (w *world) serving(group string, in bourse.Region) int {
	n := 0
	for _, m := range w.machines {
		if m.Config.Metadata[deploy.KeyGroup] == group && (in == "" || m.Region == in) && m.State == bourse.StateStarted && !m.Cordoned && m.Config.Metadata[deploy.KeyCanary] == "" {
			n++
		}
	}
	return n
}

// places counts the machines, except replacements of existing machines.
func (w *world) places() int {
	n := 0
	for _, m := range w.machines {
		if w.machines[bourse.MachineID(m.Config.Metadata[deploy.KeyReplaces])] == nil {
			n++
		}
	}
	return n
}

// dump returns the steps of a plan, one per line.
func dump(p *deploy.Plan) string {
	var out strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintf(&out, "%3d %-16s %-6s %-4s", s.ID, s.Do, s.Group, s.Region)
		if s.Machine != "" {
			fmt.Fprintf(&out, " machine %s", s.Machine)
		}
		if s.MadeBy != nil {
			fmt.Fprintf(&out, " of %d", *s.MadeBy)
		}
		var stopped bool
		var standbyOf *int
		switch do := s.Do.(type) {
		case deploy.MakeVolume:
			fmt.Fprintf(&out, " volume %s %d GB", do.Name, do.SizeGB)
			if do.Fork != "" {
				fmt.Fprintf(&out, " fork of %s", do.Fork)
			}
		case deploy.DestroyVolume:
			fmt.Fprintf(&out, " volume %s", do.Volume)
		case deploy.MakeMachine:
			if do.Volume != nil {
				fmt.Fprintf(&out, " volume of %d", *do.Volume)
			}
			stopped, standbyOf = do.Stopped, do.StandbyOf
		case deploy.UpdateMachine:
			stopped, standbyOf = do.Stopped, do.StandbyOf
		}
		if standbyOf != nil {
			fmt.Fprintf(&out, " standby of %d", *standbyOf)
		}
		if s.Replaces() != "" {
			fmt.Fprintf(&out, " replaces %s", s.Replaces())
		}
		if stopped {
			out.WriteString(" stopped")
		}
		if do, ok := s.Do.(deploy.MakeMachine); ok && do.Cordoned {
			out.WriteString(" cordoned")
		}
		if len(s.After) > 0 {
			fmt.Fprintf(&out, " after %v", s.After)
		}
		out.WriteByte('\n')
	}
	return out.String()
}
