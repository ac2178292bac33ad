package run

import (
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// sound reports CodeInvalid for a plan that cannot be carried out: it is refused, its
// steps wait for one another, or one lacks what its act needs.
func sound(p *deploy.Plan) error {
	if len(p.Refused) > 0 {
		return bourse.Errorf(bourse.CodeInvalid, "the plan is refused: %s", strings.Join(p.Refused, "; "))
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.ID != i {
			return bourse.Errorf(bourse.CodeInvalid, "step %d of the plan has id %d", i, s.ID)
		}
		refs := append([]int{}, s.After...)
		for _, ref := range []*int{s.Of, s.VolumeOf, s.StandbyOf} {
			if ref != nil {
				refs = append(refs, *ref)
			}
		}
		for _, ref := range refs {
			if ref < 0 || ref >= i { // so there is no way from a step to itself
				return bourse.Errorf(bourse.CodeInvalid, "step %d of the plan comes after step %d", i, ref)
			}
		}
		if lack := lacks(s); lack != "" {
			return bourse.Errorf(bourse.CodeInvalid, "step %d of the plan, %s, has no %s", i, s.Do, lack)
		}
	}
	return nil
}

// lacks names what a step's act needs and the step does not have; "" for nothing.
func lacks(s *deploy.Step) string {
	switch s.Do {
	case deploy.AwaitProxies:
		return ""
	case deploy.MakeMachine, deploy.RunCommand:
		if s.Config == nil {
			return "config"
		}
		return ""
	case deploy.MakeVolume:
		if s.Volume == nil {
			return "volume"
		}
		return ""
	case deploy.DestroyVolume:
		if s.VolumeID == "" && s.VolumeOf == nil {
			return "volume"
		}
		return ""
	case deploy.UpdateMachine, deploy.SetMetadata:
		if s.Config == nil {
			return "config"
		}
	case deploy.AwaitReady, deploy.RestartMachine, deploy.UncordonMachine, deploy.CordonMachine, deploy.StopMachine, deploy.StartMachine,
		deploy.DestroyMachine:
	default:
		return "act that is known"
	}
	if s.Machine == "" && s.Of == nil {
		return "machine"
	}
	return ""
}

// touches reports whether a step changes a machine that is there, so that its lease is needed.
func touches(s *deploy.Step) bool {
	switch s.Do {
	case deploy.UpdateMachine, deploy.RestartMachine, deploy.UncordonMachine, deploy.CordonMachine, deploy.StopMachine, deploy.StartMachine,
		deploy.SetMetadata, deploy.DestroyMachine:
		return true
	case deploy.RunCommand, deploy.MakeVolume, deploy.MakeMachine, deploy.AwaitReady, deploy.AwaitProxies, deploy.DestroyVolume:
	}
	return false
}
