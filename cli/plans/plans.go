// Package plans prints plans of package deploy, and shows their progress while package
// deploy/run executes them. For each machine, a line shows the action in progress, how long
// it has taken, and what it is waiting for. All commands that execute a plan use this
// package.
package plans

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// subject is the machine, volume or command that a line of the screen describes. It includes all
// steps that affect that object. A machine and its replacement are one subject.
type subject struct {
	group   string
	region  bourse.Region
	name    string           // name of the machine, or a description if there is no machine
	unnamed bool             // name is a description, until the machine is created
	machine bourse.MachineID // "" until the machine is created
	do      deploy.Action    // the most important action among its steps
	former  bourse.MachineID // machine that is replaced, or ""
	steps   []int
	hidden  bool // the subject is shown as part of a later plan
}

// subjects returns the subjects of a plan in the order of its steps. of[i] is the index of
// the subject of step i.
func subjects(p *deploy.Plan) (list []subject, of []int) {
	of = make([]int, len(p.Steps))
	mounted := map[int]int{} // maps a MakeVolume step to the step that creates the machine for the volume
	for i := range p.Steps {
		if do, ok := p.Steps[i].Do.(deploy.MakeMachine); ok && do.Volume != nil {
			mounted[*do.Volume] = i
		}
	}
	known := map[any]int{}
	pairs := pairsOf(p)
	for i := range p.Steps {
		key, head := keyOf(p, mounted, i)
		if old := p.Steps[head].Replaces(); pairs[old] {
			key = old
		}
		at, ok := known[key]
		if !ok {
			at = len(list)
			known[key] = at
			list = append(list, newSubject(p, head, pairs))
		}
		of[i] = at
		s := &list[at]
		s.steps = append(s.steps, i)
		if weight(p.Steps[i].Do) > weight(s.do) {
			s.do = p.Steps[i].Do
		}
	}
	return list, of
}

// keyOf returns a key that identifies the subject of step i, and the index of the step that
// describes the subject.
func keyOf(p *deploy.Plan, mounted map[int]int, i int) (key any, head int) {
	for {
		s := &p.Steps[i]
		machine, mounts := mounted[i]
		switch {
		case s.MadeBy != nil:
			i = *s.MadeBy
		case mounts:
			i = machine
		case s.Machine != "":
			return s.Machine, i
		case (deploy.Is[deploy.AwaitProxies](s.Do) || deploy.Is[deploy.DestroyVolume](s.Do)) && len(s.After) == 1:
			i = s.After[0] // the step concerns the machine of the step before it
		default:
			return i, i
		}
	}
}

// pairsOf returns the set of machines that a plan replaces and then destroys.
func pairsOf(p *deploy.Plan) map[bourse.MachineID]bool {
	gone, out := map[bourse.MachineID]bool{}, map[bourse.MachineID]bool{}
	for i := range p.Steps {
		if s := &p.Steps[i]; deploy.Is[deploy.DestroyMachine](s.Do) && s.Machine != "" {
			gone[s.Machine] = true
		}
	}
	for i := range p.Steps {
		if old := p.Steps[i].Replaces(); gone[old] {
			out[old] = true
		}
	}
	return out
}

func newSubject(p *deploy.Plan, head int, pairs map[bourse.MachineID]bool) subject {
	s := &p.Steps[head]
	for _, old := range []bourse.MachineID{s.Replaces(), s.Machine} {
		if pairs[old] {
			return subject{group: s.Group, region: s.Region, name: cmp.Or(p.Seen[old].Name, s.Name, string(old)), do: s.Do, former: old}
		}
	}
	out := subject{group: s.Group, region: s.Region, machine: s.Machine, name: cmp.Or(s.Name, string(s.Machine)), do: s.Do}
	if out.name == "" {
		out.name, out.unnamed = describeStep(s), true
	}
	return out
}

// describeStep describes the subject of a step that does not concern an existing machine.
func describeStep(s *deploy.Step) string {
	switch do := s.Do.(type) {
	case deploy.RunCommand:
		return "release command"
	case deploy.MakeVolume:
		return "volume " + do.Name
	case deploy.DestroyVolume:
		return "volume"
	case deploy.AwaitProxies:
		return "proxies"
	case deploy.MakeMachine:
		if old := s.Replaces(); old != "" {
			return "new for " + string(old)
		}
		return "new"
	default:
		return s.Do.String()
	}
}

// words describe an action in different states.
type words struct {
	do     deploy.Action
	now    string // while the action is in progress
	done   string // after the action is done
	undone string // after the action was undone
}

// actions lists all actions, from the least to the most important. A subject is described by the
// most important action of its steps.
var actions = []words{
	{deploy.AwaitReady{}, "checking", "ready", ""},
	{deploy.AwaitProxies{}, "updating routes", "routes updated", ""},
	{deploy.SetMetadata{}, "marking", "marked", "metadata as before"},
	{deploy.CordonMachine{}, "cordoning", "cordoned", "uncordoned"},
	{deploy.UncordonMachine{}, "uncordoning", "uncordoned", "cordoned"},
	{deploy.StartMachine{}, "starting", "started", "stopped"},
	{deploy.StopMachine{}, "stopping", "stopped", "started"},
	{deploy.RestartMachine{}, "restarting", "restarted", ""},
	{deploy.RunCommand{}, "running", "succeeded", ""},
	{deploy.MakeVolume{}, "making volume", "volume made", "volume destroyed"},
	{deploy.DestroyVolume{}, "destroying volume", "volume destroyed", ""},
	{deploy.DestroyMachine{}, "destroying", "destroyed", ""},
	{deploy.UpdateMachine{}, "updating", "updated", "at its former version"},
	{deploy.MakeMachine{}, "starting", "made", "destroyed"},
}

func weight(do deploy.Action) int {
	return slices.IndexFunc(actions, func(w words) bool { return w.do.String() == do.String() })
}

func wordsOf(do deploy.Action) words { return actions[weight(do)] }
