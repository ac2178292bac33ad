// Package plans shows plans of package deploy to people and carries them out before
// their eyes: a line for each machine, with what is done to it, for how long, and what
// it waits for. All commands that change several machines in order share it.
//
// It only shows: what is done, and what is undone after a failure, is package
// deploy/run's.
package plans

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// subject is what a person follows: a machine, a volume or a command, with all steps
// that are about it. A machine and the one that takes its place are one.
type subject struct {
	group   string
	region  bourse.Region
	name    string           // of the machine, or what it is
	unnamed bool             // its name is only what it is, until it is made
	machine bourse.MachineID // "" until it is made
	act     deploy.Act       // what it comes to: the first of its steps that changes anything
	why     string
	canary  bool
	former  bourse.MachineID // that another one replaces; "": it is no such pair
	steps   []int
	hidden  bool // a later plan is about it
}

// subjects returns what a plan is about, in the order of its steps, and for each step the
// index of its subject.
func subjects(p *deploy.Plan) (list []subject, of []int) {
	of = make([]int, len(p.Steps))
	mounted := map[int]int{} // MakeVolume step → the step that makes the machine that mounts it
	for i := range p.Steps {
		if v := p.Steps[i].VolumeOf; v != nil {
			mounted[*v] = i
		}
	}
	known := map[any]int{}
	pairs := pairsOf(p)
	for i := range p.Steps {
		key, head := keyOf(p, mounted, i)
		if old := replaced(&p.Steps[head]); pairs[old] {
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
		if weight(p.Steps[i].Do) > weight(s.act) {
			s.act, s.why = p.Steps[i].Do, cmp.Or(p.Steps[i].Why, s.why)
		}
	}
	return list, of
}

// keyOf returns what identifies the subject of a step, and the step that describes it.
func keyOf(p *deploy.Plan, mounted map[int]int, i int) (key any, head int) {
	for range len(p.Steps) { // a plan that leads in a circle ends all the same
		s := &p.Steps[i]
		machine, mounts := mounted[i]
		switch {
		case s.Of != nil && valid(p, *s.Of):
			i = *s.Of
		case mounts:
			i = machine
		case s.Machine != "":
			return s.Machine, i
		case (s.Do == deploy.AwaitProxies || s.Do == deploy.DestroyVolume) && len(s.After) == 1 && valid(p, s.After[0]):
			i = s.After[0] // it is about the machine of the step before
		default:
			return i, i
		}
	}
	return i, i
}

func valid(p *deploy.Plan, step int) bool { return step >= 0 && step < len(p.Steps) }

// replaced returns the machine whose place the one that a step makes is to take; "": none.
func replaced(s *deploy.Step) bourse.MachineID {
	if s.Do != deploy.MakeMachine || s.Config == nil {
		return ""
	}
	return bourse.MachineID(s.Config.Metadata[deploy.KeyReplaces])
}

// pairsOf returns the machines that a plan both replaces and destroys.
func pairsOf(p *deploy.Plan) map[bourse.MachineID]bool {
	gone, out := map[bourse.MachineID]bool{}, map[bourse.MachineID]bool{}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Do == deploy.DestroyMachine && s.Machine != "" {
			gone[s.Machine] = true
		}
	}
	for i := range p.Steps {
		if old := replaced(&p.Steps[i]); gone[old] {
			out[old] = true
		}
	}
	return out
}

func newSubject(p *deploy.Plan, head int, pairs map[bourse.MachineID]bool) subject {
	s := &p.Steps[head]
	for _, old := range []bourse.MachineID{replaced(s), s.Machine} {
		if pairs[old] {
			return subject{group: s.Group, region: s.In, name: cmp.Or(p.Seen[old].Name, s.Name, string(old)), act: s.Do, why: s.Why, former: old}
		}
	}
	out := subject{group: s.Group, region: s.In, machine: s.Machine, name: cmp.Or(s.Name, string(s.Machine)), act: s.Do, why: s.Why}
	if s.Config != nil {
		out.canary = s.Config.Metadata[deploy.KeyCanary] == "true"
	}
	if out.name == "" {
		out.name, out.unnamed = nameless(s), true
	}
	return out
}

// nameless says what a step is about that no machine is yet the subject of.
func nameless(s *deploy.Step) string {
	switch s.Do {
	case deploy.RunCommand:
		return "release command"
	case deploy.MakeVolume, deploy.DestroyVolume:
		if s.Volume != nil {
			return "volume " + s.Volume.Name
		}
		return "volume"
	case deploy.AwaitProxies:
		return "proxies"
	case deploy.MakeMachine:
		if s.Config != nil && s.Config.Metadata[deploy.KeyReplaces] != "" {
			return "new for " + s.Config.Metadata[deploy.KeyReplaces]
		}
		return "new"
	default:
		return string(s.Do)
	}
}

// weights order acts by how much they say of what happens to a machine.
var weights = []deploy.Act{
	deploy.AwaitReady, deploy.AwaitProxies, deploy.SetMetadata, deploy.CordonMachine, deploy.UncordonMachine, deploy.StartMachine,
	deploy.StopMachine, deploy.RestartMachine, deploy.RunCommand, deploy.MakeVolume, deploy.DestroyVolume, deploy.DestroyMachine,
	deploy.UpdateMachine, deploy.MakeMachine,
}

func weight(a deploy.Act) int { return slices.Index(weights, a) }

// words are how an act is called.
type words struct {
	now    string // while it is done: "updating"
	done   string // once it is: "updated"
	undone string // once it was undone: "as it was before"
}

var wordsOf = map[deploy.Act]words{
	deploy.RunCommand:      {"running", "ended well", ""},
	deploy.MakeVolume:      {"making volume", "volume made", "volume destroyed"},
	deploy.MakeMachine:     {"starting", "made", "destroyed"},
	deploy.UpdateMachine:   {"updating", "updated", "at its former version"},
	deploy.AwaitReady:      {"checking", "ready", ""},
	deploy.RestartMachine:  {"restarting", "restarted", ""},
	deploy.UncordonMachine: {"uncordoning", "uncordoned", "cordoned"},
	deploy.CordonMachine:   {"cordoning", "cordoned", "uncordoned"},
	deploy.AwaitProxies:    {"notifying proxies", "proxies notified", ""},
	deploy.StopMachine:     {"stopping", "stopped", "started"},
	deploy.StartMachine:    {"starting", "started", "stopped"},
	deploy.SetMetadata:     {"marking", "marked", "metadata as before"},
	deploy.DestroyMachine:  {"destroying", "destroyed", ""},
	deploy.DestroyVolume:   {"destroying volume", "volume destroyed", ""},
}
