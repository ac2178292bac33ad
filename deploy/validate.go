package deploy

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/bourse-dev/bourse"
)

// Bounds of a plan that is read.
const (
	MaxSteps     = 100_000
	MaxPlanBytes = 256 << 20
	maxEdges     = 1 << 20
	maxTextBytes = 64 << 10
)

// Read reads a plan as its JSON, of at most MaxPlanBytes, and validates it: CodeInvalid
// for what is no plan.
func Read(r io.Reader) (*Plan, error) {
	raw, err := io.ReadAll(io.LimitReader(r, MaxPlanBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxPlanBytes {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid plan: more than %d bytes", MaxPlanBytes)
	}
	return Parse(raw)
}

// Parse is Read of bytes.
func Parse(raw []byte) (*Plan, error) {
	var p Plan
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid plan: %w", err)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

// Validate reports CodeInvalid for a plan that cannot be carried out: it says what is
// wrong with the first such step. A valid one has steps whose IDs are their indexes, each
// after earlier ones only, with all that their acts need; and what cannot be undone
// is followed only by more of the same.
func (p *Plan) Validate() error {
	if err := p.App.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "invalid plan: %w", err)
	}
	if len(p.Steps) > MaxSteps {
		return bourse.Errorf(bourse.CodeInvalid, "invalid plan: %d steps, at most %d", len(p.Steps), MaxSteps)
	}
	edges := 0
	v := &validator{Plan: p, seen: make([]int, len(p.Steps))}
	for i := range p.Steps {
		if edges += len(p.Steps[i].After); edges > maxEdges {
			return bourse.Errorf(bourse.CodeInvalid, "invalid plan: its steps wait for more than %d others", maxEdges)
		}
		if err := v.step(i); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "invalid plan: step %d (%s): %w", i, clean(string(p.Steps[i].Do)), err)
		}
	}
	return nil
}

// validator looks at the steps of a plan.
type validator struct {
	*Plan
	seen   []int // by step: the last one, and 1, that was searched from
	visits int
}

// maxVisits bounds what a search for all results that steps need may cost.
const maxVisits = 1 << 26

func (p *validator) step(i int) error {
	s := &p.Steps[i]
	if s.ID != i {
		return fmt.Errorf("its id is %d", s.ID)
	}
	for n, before := range s.After {
		switch {
		case before < 0 || before >= i:
			return fmt.Errorf("it is after step %d, which is not before it", before)
		case n > 0 && before <= s.After[n-1]:
			return fmt.Errorf("the steps before it are not in order")
		case p.Steps[before].final() && !s.final():
			return fmt.Errorf("it may fail, and is after step %d, which nothing undoes", before)
		}
	}
	if len(s.Why) > maxTextBytes || len(s.Name) > maxTextBytes || len(s.Group) > maxTextBytes {
		return fmt.Errorf("a text of more than %d bytes", maxTextBytes)
	}
	if s.Wait < 0 {
		return fmt.Errorf("it waits for a negative time")
	}
	if s.In != "" {
		if err := s.In.Validate(); err != nil {
			return err
		}
	}
	if err := p.target(s); err != nil {
		return err
	}
	return p.needs(s)
}

// target looks at what a step is done to.
func (p *validator) target(s *Step) error {
	switch s.Do {
	case RunCommand, MakeVolume, MakeMachine, AwaitProxies, DestroyVolume:
		if s.Machine != "" || s.Of != nil {
			return fmt.Errorf("it is done to no machine")
		}
		return nil
	case UpdateMachine, AwaitReady, RestartMachine, UncordonMachine, CordonMachine, StopMachine, StartMachine, SetMetadata, DestroyMachine:
	default:
		return fmt.Errorf("no such act")
	}
	if s.Of != nil {
		if s.Machine != "" {
			return fmt.Errorf("it is done to one machine: machine and of exclude each other")
		}
		return p.ref(s, *s.Of, MakeMachine)
	}
	return s.Machine.Validate()
}

// ref looks at a step that another needs the result of.
func (p *validator) ref(s *Step, id int, do Act) error {
	if id < 0 || id >= s.ID || p.Steps[id].Do != do {
		return fmt.Errorf("step %d is no earlier one that is to %s", id, do)
	}
	if !p.follows(s.ID, id) {
		return fmt.Errorf("it needs the result of step %d, and is not after it", id)
	}
	return nil
}

// follows reports whether one step can begin only after another has ended.
func (p *validator) follows(id, before int) bool {
	for todo := []int{id}; len(todo) > 0 && p.visits < maxVisits; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		p.visits += len(p.Steps[at].After)
		for _, b := range p.Steps[at].After {
			if b == before {
				return true
			}
			if b > before && p.seen[b] != id+1 {
				p.seen[b] = id + 1
				todo = append(todo, b)
			}
		}
	}
	return false
}

// needs looks at what the act of a step needs beside a machine.
func (p *validator) needs(s *Step) error {
	switch s.Do {
	case MakeMachine, UpdateMachine, RunCommand:
		return p.config(s)
	case MakeVolume:
		if s.Volume == nil {
			return fmt.Errorf("it has no volume to make")
		}
		order := bourse.VolumeOrder{
			Name: s.Volume.Name, SizeGB: s.Volume.SizeGB, Source: s.Volume.Fork,
			FSType: bourse.DefaultFSType, RetentionDays: bourse.MaxRetentionDays,
		}
		return order.Validate()
	case DestroyVolume:
		return s.VolumeID.Validate()
	case SetMetadata:
		if s.Config == nil || s.Former == nil {
			return fmt.Errorf("it has no metadata to set, or to return to")
		}
	default:
	}
	return nil
}

func (p *validator) config(s *Step) error {
	if s.Config == nil {
		return fmt.Errorf("it has no config")
	}
	if s.Do == UpdateMachine && s.Former == nil {
		return fmt.Errorf("it has no config to return to")
	}
	if s.On != "" && (s.Do != MakeMachine || s.Stopped || !p.Reserve || len(s.Config.Mounts) > 0) {
		return fmt.Errorf("on: only a machine that is started, without volumes, by a plan which reserves can be for a worker")
	}
	config := *s.Config
	for name, id := range map[string]*int{"volume_of": s.VolumeOf, "standby_of": s.StandbyOf} {
		if id == nil {
			continue
		}
		do := MakeMachine
		if name == "volume_of" {
			do = MakeVolume
		}
		if err := p.ref(s, *id, do); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if s.VolumeOf != nil {
		if len(config.Mounts) != 1 || config.Mounts[0].Volume != "" {
			return fmt.Errorf("volume_of: its config has no mount without a volume")
		}
		mount := config.Mounts[0]
		mount.Volume = bourse.NewVolumeID(1) // some volume: which one is not known yet
		config.Mounts = []bourse.Mount{mount}
	}
	return config.Normalize()
}
