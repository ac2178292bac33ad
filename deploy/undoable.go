package deploy

import "slices"

// Undoable returns the steps to undo, in the order to undo them, after those of which
// begun is true have begun (whether or not they ended well), and no others will. It is
// begun in reverse, without what leads to a destroyed machine or volume: what takes
// the place of a machine stays once that may be gone. begun is as long as the plan's
// steps.
func (p *Plan) Undoable(begun []bool) []int {
	keep := make([]bool, len(p.Steps))
	var out []int
	for i := len(p.Steps) - 1; i >= 0; i-- {
		s := &p.Steps[i]
		if begun[i] && s.final() {
			keep[i] = true
		}
		if keep[i] {
			for _, before := range s.After {
				keep[before] = true
			}
			continue
		}
		if begun[i] && s.undoable() {
			out = append(out, i)
		}
	}
	return slices.Clip(out)
}

// final reports whether s takes away what nothing returns.
func (s *Step) final() bool {
	return s.Do == DestroyVolume || s.Do == DestroyMachine && s.Of == nil
}

// undoable reports whether something undoes s.
func (s *Step) undoable() bool {
	switch s.Do {
	case MakeVolume, MakeMachine, UpdateMachine, UncordonMachine, CordonMachine, StopMachine, StartMachine, SetMetadata:
		return true
	case RunCommand, AwaitReady, RestartMachine, AwaitProxies, DestroyMachine, DestroyVolume:
	}
	return false
}
