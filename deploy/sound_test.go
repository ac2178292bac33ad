package deploy_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
)

// sound checks the structure of a plan. Each step's ID must be its index, steps may wait only for earlier steps,
// actions must be complete, and only final steps may follow final steps.
func sound(p *deploy.Plan) error {
	if err := p.App.Validate(); err != nil {
		return err
	}
	after := make([]map[int]bool, len(p.Steps)) // for each step, all steps that have finished when it begins
	for i := range p.Steps {
		s := &p.Steps[i]
		after[i] = map[int]bool{}
		for n, before := range s.After {
			if before < 0 || before >= i || n > 0 && before <= s.After[n-1] {
				return fmt.Errorf("step %d (%s) is after steps %v", i, s.Do, s.After)
			}
			if p.Steps[before].Final() && !s.Final() {
				return fmt.Errorf("step %d (%s) may fail after step %d, which cannot be undone", i, s.Do, before)
			}
			after[i][before] = true
			for earlier := range after[before] {
				after[i][earlier] = true
			}
		}
		made := func(ref *int) bool {
			return ref == nil || after[i][*ref] && deploy.Is[deploy.MakeMachine](p.Steps[*ref].Do)
		}
		makes, _ := s.Do.(deploy.MakeMachine)
		updates, _ := s.Do.(deploy.UpdateMachine)
		if !made(s.MadeBy) || !made(makes.StandbyOf) || !made(updates.StandbyOf) ||
			makes.Volume != nil && (!after[i][*makes.Volume] || !deploy.Is[deploy.MakeVolume](p.Steps[*makes.Volume].Do)) {
			return fmt.Errorf("step %d (%s) needs an object that no earlier step creates", i, s.Do)
		}
		if err := complete(p, s); err != nil || s.ID != i {
			return fmt.Errorf("step %d (%s) with ID %d: %w", i, s.Do, s.ID, err)
		}
	}
	return nil
}

// complete checks that a step has all required fields and that they are consistent.
func complete(p *deploy.Plan, s *deploy.Step) error {
	if s.Region != "" {
		if err := s.Region.Validate(); err != nil {
			return err
		}
	}
	switch s.Do.(type) {
	case deploy.RunCommand, deploy.MakeVolume, deploy.MakeMachine, deploy.AwaitProxies, deploy.DestroyVolume:
		if s.Machine != "" || s.MadeBy != nil {
			return fmt.Errorf("it does not act on a machine")
		}
	default:
		if s.MadeBy != nil && s.Machine != "" {
			return fmt.Errorf("it acts on two machines")
		}
		if err := s.Machine.Validate(); s.MadeBy == nil && err != nil {
			return err
		}
	}
	switch do := s.Do.(type) {
	case deploy.UpdateMachine:
		if do.Former == nil {
			return fmt.Errorf("it has no former config")
		}
		return normal(do.Config, nil)
	case deploy.SetMetadata:
		sets, restores := slices.Sorted(maps.Keys(do.Metadata)), slices.Sorted(maps.Keys(do.Former))
		if len(sets) == 0 || !slices.Equal(sets, restores) {
			return fmt.Errorf("it sets %q, and undoing it restores %q", sets, restores)
		}
	case deploy.RunCommand:
		return normal(do.Config, nil)
	case deploy.MakeMachine:
		if do.Worker != "" && (do.Stopped || !p.Reserve || len(do.Config.Mounts) > 0) {
			return fmt.Errorf("only a machine that is started, has no volumes, and belongs to a plan with reservations can have a worker")
		}
		return normal(do.Config, do.Volume)
	case deploy.MakeVolume:
		order := bourse.VolumeOrder{
			Name: do.Name, SizeGB: do.SizeGB, Source: do.Fork,
			FSType: bourse.DefaultFSType, RetentionDays: bourse.MaxRetentionDays,
		}
		return order.Validate()
	case deploy.DestroyVolume:
		return do.Volume.Validate()
	}
	return nil
}

// normal checks a config. If volume is set, it is the step that creates the volume of the
// config's mount.
func normal(c *bourse.Config, volume *int) error {
	config := *c
	if volume != nil {
		if len(config.Mounts) != 1 || config.Mounts[0].Volume != "" {
			return fmt.Errorf("its config has no mount without a volume ID")
		}
		mount := config.Mounts[0]
		mount.Volume = bourse.NewVolumeID(1)
		config.Mounts = []bourse.Mount{mount}
	}
	return config.Normalize()
}
