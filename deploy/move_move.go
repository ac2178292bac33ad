package deploy

import (
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/workload"
)

// MoveOptions say how machines are moved. The zero value is useful.
type MoveOptions struct {
	Region bourse.Region   // where to; "": each stays in its own
	To     bourse.WorkerID // of Region; "": the exchange chooses one
	Lanes  int             // machines without volumes that are moved at a time; default 8
	Wait   bourse.Duration // for a replacement to become ready; 0: the executor's default
	// Downtime says that a machine with a volume may be moved although too few others of
	// its group serve meanwhile.
	Downtime bool
	Why      string // for a reader: "worker a is drained"
}

const defaultLanes = 8

// Moves are what can be done about machines that are to go elsewhere.
type Moves struct {
	Plan  Plan               `json:"plan"` // it moves those of Go
	Go    []bourse.MachineID `json:"go"`
	Later []bourse.MachineID `json:"later,omitempty"` // a plan that is made afterwards moves them: they have volumes
	Stay  []Stay             `json:"stay,omitempty"`
}

// Stay is a machine that cannot be moved.
type Stay struct {
	Machine bourse.MachineID `json:"machine"`
	Name    string           `json:"name"`
	Why     string           `json:"why"`
}

// Of plans the moves of machines of an app. State has all of the app's machines, with
// their configs, and its volumes.
func Of(state *State, ids []bourse.MachineID, opts MoveOptions) Moves {
	if opts.Lanes < 1 {
		opts.Lanes = defaultLanes
	}
	p := &planner{state: state, opts: opts}
	var out Moves
	var pinned []bourse.MachineID
	for i := range state.Machines {
		m := &state.Machines[i]
		if !slices.Contains(ids, m.ID) {
			continue
		}
		if why := p.stays(m); why != "" {
			out.Stay = append(out.Stay, Stay{m.ID, m.Name, why})
		} else if len(m.Config.Mounts) > 0 {
			pinned = append(pinned, m.ID)
		} else {
			out.Go = append(out.Go, m.ID)
		}
	}
	pace := Pace{MaxUnavailable: float64(opts.Lanes), Wait: opts.Wait, Smoke: true}
	if out.Later = pinned; len(out.Go) == 0 {
		out.Go, out.Later, pace.MaxUnavailable = pinned, nil, 1
	}
	if len(out.Go) == 0 {
		return out
	}
	out.Plan = Move(*state, Moving{Machines: out.Go, Why: opts.Why}, pace)
	for i := range out.Plan.Steps {
		s := &out.Plan.Steps[i]
		if opts.Region != "" && (s.Do == MakeMachine || s.Do == MakeVolume) {
			s.In = opts.Region
		}
		if opts.To != "" && s.Do == MakeMachine && s.VolumeOf == nil {
			s.On, out.Plan.Reserve = opts.To, true
		}
		if opts.To != "" && s.Volume != nil { // its machine is where it is
			config := *s.Config
			config.Requirements = config.Requirements.On(opts.To)
			s.Config = &config
		}
		if s.Volume != nil { // a region of few workers has no other place for it
			s.Volume.AnyWorker = true
		}
	}
	return out
}

// Of returns the machine whose move a step of the plan is part of; "" where that is no
// one's alone.
func (m *Moves) Of(step int) bourse.MachineID {
	s := &m.Plan.Steps[step]
	switch {
	case s.Of != nil:
		return m.Of(*s.Of)
	case s.Do == MakeMachine:
		return bourse.MachineID(s.Config.Metadata[KeyReplaces])
	case s.Do == MakeVolume:
		i := slices.IndexFunc(m.Plan.Steps, func(x Step) bool {
			return x.VolumeOf != nil && *x.VolumeOf == step && x.Do == MakeMachine
		})
		if i < 0 {
			return ""
		}
		return m.Of(i)
	case s.StandbyOf != nil: // a spare's: it cannot be changed
		return m.Of(*s.StandbyOf)
	}
	return s.Machine
}

// planner looks at what there is.
type planner struct {
	state *State
	opts  MoveOptions
}

// stays returns why a machine cannot be moved, "" if it can.
func (p *planner) stays(m *machinesapi.Machine) string {
	config := m.Config
	switch {
	case p.opts.To != "" && m.Worker == p.opts.To:
		return "it is on worker " + string(p.opts.To) + " already"
	case p.opts.To != "" && m.State != bourse.StateStarted && config != nil && len(config.Mounts) == 0:
		return fmt.Sprintf("it is %s, and only one that runs can be made on a worker that is named: start it, or let the exchange choose", m.State)
	case m.HostStatus != "" && m.HostStatus != machinesapi.HostOK || config == nil:
		return "its worker does not answer"
	case !slices.Contains([]bourse.State{bourse.StateStarted, bourse.StateStopped, bourse.StateSuspended, bourse.StateCreated}, m.State):
		return fmt.Sprintf("it is %s: try again once it is not", m.State)
	case len(config.Mounts) > 1:
		return fmt.Sprintf("it has %d volumes", len(config.Mounts))
	case config.ImageKind() == bourse.PollerImage:
		return "it runs on a host that asked for work"
	case m.State == bourse.StateStarted && (config.AutoDestroy || config.RestartPolicy().Policy == bourse.RestartNo && !serves(config)):
		return "it runs to its end, and would run again from the beginning: wait for it, or destroy it"
	case len(config.Mounts) > 0 && isServing(m) && !p.opts.Downtime:
		if need, others := needed(config), p.others(m); others < need {
			return fmt.Sprintf("%d of its group would serve while its volume is copied, and %d have to: add one, or allow downtime", others, need)
		}
	}
	return ""
}

// others counts the machines of m's group that serve beside it.
func (p *planner) others(m *machinesapi.Machine) int {
	n := 0
	for i := range p.state.Machines {
		o := &p.state.Machines[i]
		if o.ID != m.ID && o.Config != nil && isServing(o) && o.Config.Metadata[KeyGroup] == m.Config.Metadata[KeyGroup] {
			n++
		}
	}
	return n
}

// services returns the services that requests from outside reach.
func services(c *bourse.Config) []workload.Service {
	return slices.DeleteFunc(workload.Services(c), func(s workload.Service) bool { return len(s.Ports) == 0 })
}

func serves(c *bourse.Config) bool { return len(services(c)) > 0 }

// isServing reports whether proxies pass requests on to m now.
func isServing(m *machinesapi.Machine) bool {
	return m.State == bourse.StateStarted && !m.Cordoned && serves(m.Config) &&
		!slices.ContainsFunc(m.Checks, func(c bourse.CheckStatus) bool { return c.Status == bourse.CheckCritical })
}

// needed is how many have to serve.
func needed(c *bourse.Config) int {
	n := 1
	for _, s := range services(c) {
		n = max(n, s.MinRunning)
	}
	return n
}
