package deploy_test

import (
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// sound returns an error unless every step of a plan has the index as its ID, comes only after earlier
// steps, and has what its act needs, and unless only final steps come after final ones.
func sound(p *deploy.Plan) error {
	if err := p.App.Validate(); err != nil {
		return err
	}
	after := make([]map[int]bool, len(p.Steps)) // all steps that have ended when a step begins
	for i := range p.Steps {
		s := &p.Steps[i]
		after[i] = map[int]bool{}
		for n, before := range s.After {
			if before < 0 || before >= i || n > 0 && before <= s.After[n-1] {
				return fmt.Errorf("step %d (%s) is after steps %v", i, s.Do, s.After)
			}
			if final(&p.Steps[before]) && !final(s) {
				return fmt.Errorf("step %d (%s) may fail after step %d, which nothing undoes", i, s.Do, before)
			}
			after[i][before] = true
			for earlier := range after[before] {
				after[i][earlier] = true
			}
		}
		for ref, do := range map[*int]deploy.Act{s.Of: deploy.MakeMachine, s.StandbyOf: deploy.MakeMachine, s.VolumeOf: deploy.MakeVolume} {
			if ref != nil && (!after[i][*ref] || p.Steps[*ref].Do != do) {
				return fmt.Errorf("step %d (%s) needs what step %d makes", i, s.Do, *ref)
			}
		}
		if err := complete(p, s); err != nil || s.ID != i || s.Wait < 0 {
			return fmt.Errorf("step %d (%s) with ID %d and wait %d: %w", i, s.Do, s.ID, s.Wait, err)
		}
	}
	return nil
}

// final reports whether a step takes away what nothing returns.
func final(s *deploy.Step) bool {
	return s.Do == deploy.DestroyVolume || s.Do == deploy.DestroyMachine && s.Of == nil
}

// complete checks that a step has what its act needs, and nothing that contradicts it.
func complete(p *deploy.Plan, s *deploy.Step) error {
	if s.In != "" {
		if err := s.In.Validate(); err != nil {
			return err
		}
	}
	switch s.Do {
	case deploy.RunCommand, deploy.MakeVolume, deploy.MakeMachine, deploy.AwaitProxies, deploy.DestroyVolume:
		if s.Machine != "" || s.Of != nil {
			return fmt.Errorf("it is done to no machine")
		}
	default:
		if s.Of != nil && s.Machine != "" {
			return fmt.Errorf("it is done to two machines")
		}
		if err := s.Machine.Validate(); s.Of == nil && err != nil {
			return err
		}
	}
	switch s.Do {
	case deploy.UpdateMachine, deploy.SetMetadata:
		if s.Config == nil || s.Former == nil {
			return fmt.Errorf("it has no config, or none to return to")
		}
	case deploy.MakeMachine, deploy.RunCommand:
		if s.Config == nil {
			return fmt.Errorf("it has no config")
		}
	case deploy.MakeVolume:
		order := bourse.VolumeOrder{
			Name: s.Volume.Name, SizeGB: s.Volume.SizeGB, Source: s.Volume.Fork,
			FSType: bourse.DefaultFSType, RetentionDays: bourse.MaxRetentionDays,
		}
		return order.Validate()
	case deploy.DestroyVolume:
		return s.VolumeID.Validate()
	default:
	}
	if s.Config == nil || s.Do == deploy.SetMetadata {
		return nil
	}
	if s.On != "" && (s.Do != deploy.MakeMachine || s.Stopped || !p.Reserve || len(s.Config.Mounts) > 0) {
		return fmt.Errorf("only a machine that is started, without volumes, by a plan which reserves can be for a worker")
	}
	config := *s.Config
	if s.VolumeOf != nil {
		if len(config.Mounts) != 1 || config.Mounts[0].Volume != "" {
			return fmt.Errorf("its config has no mount without a volume")
		}
		mount := config.Mounts[0]
		mount.Volume = bourse.NewVolumeID(1)
		config.Mounts = []bourse.Mount{mount}
	}
	return config.Normalize()
}
