package deploy

import (
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// Action is what a step does: one of the types in this file. String returns its name, such as "make machine".
type Action interface {
	String() string
}

// Actions that make something. Undoing a step destroys what it has made.
type (
	// RunCommand runs a command on a machine of its own until it exits with status 0. Nothing undoes it.
	RunCommand struct {
		Config  *bourse.Config  `json:"config"`
		Timeout bourse.Duration `json:"timeout,omitempty"` // 0: the executor's default
	}

	// MakeVolume makes an empty volume, or a fork of another one.
	MakeVolume struct {
		Name   string          `json:"volume_name"`
		SizeGB int64           `json:"size_gb"`
		Fork   bourse.VolumeID `json:"fork,omitempty"`
		// For is the config of the machine that will mount the volume: the volume's worker must have room for it.
		For *bourse.Config `json:"for,omitempty"`
		// AnyWorker allows a worker that has another of the app's volumes with the same name.
		AnyWorker bool `json:"any_worker,omitempty"`
	}

	// MakeMachine makes a machine.
	MakeMachine struct {
		Config   *bourse.Config `json:"config"`
		Stopped  bool           `json:"stopped,omitempty"`  // it is not started
		Cordoned bool           `json:"cordoned,omitempty"` // it is made cordoned (skip_service_registration)
		// Worker is the worker that has to take the machine, "" for any. The machine takes capacity there that the plan
		// has reserved (Reserve), so that its config does not bind it to the worker.
		Worker bourse.WorkerID `json:"worker,omitempty"`
		// Volume is the MakeVolume step whose volume the machine mounts. Config.Mounts[0] names no volume then.
		Volume *int `json:"volume_of,omitempty"`
		// StandbyOf is the MakeMachine step whose machine is appended to Config.Standbys.
		StandbyOf *int `json:"standby_of,omitempty"`
	}
)

// Actions on a machine: Step.Machine or Step.MadeBy.
type (
	// UpdateMachine gives the machine another config. Undoing the step restores Former.
	UpdateMachine struct {
		Config *bourse.Config `json:"config"`
		Former *bourse.Config `json:"former"`
		// Instance is the version that the plan was made for. The update fails if the machine has another one.
		Instance  bourse.InstanceID `json:"instance,omitempty"`
		Stopped   bool              `json:"stopped,omitempty"`    // it is not started
		StandbyOf *int              `json:"standby_of,omitempty"` // as in MakeMachine
	}

	// AwaitReady waits until the machine has started and its checks pass. Nothing undoes it.
	AwaitReady struct {
		Timeout bourse.Duration `json:"timeout,omitempty"` // 0: the executor's default
		Smoke   bool            `json:"smoke,omitempty"`   // it fails if the machine exits soon after its start
	}

	// RestartMachine stops and starts the machine. Nothing undoes it.
	RestartMachine struct{}
	// CordonMachine takes the machine out of routing.
	CordonMachine struct{}
	// UncordonMachine puts the machine back into routing.
	UncordonMachine struct{}
	// StopMachine stops the machine.
	StopMachine struct{}
	// StartMachine starts the machine.
	StartMachine struct{}

	// SetMetadata sets the given metadata; an empty value removes a key. Undoing the step restores Former.
	SetMetadata struct {
		Metadata map[string]string `json:"metadata"`
		Former   map[string]string `json:"former"`
	}

	// DestroyMachine destroys the machine. Nothing restores it, so only other destroys come after it, unless this plan
	// made the machine (MadeBy).
	DestroyMachine struct {
		Volumes []bourse.VolumeID `json:"volumes,omitempty"` // that the machine mounts
	}
)

// Actions on nothing that the plan makes.
type (
	// AwaitProxies waits until every proxy knows about the steps before it. Nothing undoes it.
	AwaitProxies struct{}

	// DestroyVolume destroys a volume. Nothing restores it, so only other destroys come after it.
	DestroyVolume struct {
		Volume bourse.VolumeID `json:"volume"`
	}
)

func (RunCommand) String() string      { return "run command" }
func (MakeVolume) String() string      { return "make volume" }
func (MakeMachine) String() string     { return "make machine" }
func (UpdateMachine) String() string   { return "update machine" }
func (AwaitReady) String() string      { return "await ready" }
func (RestartMachine) String() string  { return "restart machine" }
func (CordonMachine) String() string   { return "cordon machine" }
func (UncordonMachine) String() string { return "uncordon machine" }
func (StopMachine) String() string     { return "stop machine" }
func (StartMachine) String() string    { return "start machine" }
func (SetMetadata) String() string     { return "set metadata" }
func (DestroyMachine) String() string  { return "destroy machine" }
func (AwaitProxies) String() string    { return "await proxies" }
func (DestroyVolume) String() string   { return "destroy volume" }

// Actions returns one action of each type, with no fields set.
func Actions() []Action {
	return []Action{
		RunCommand{},
		MakeVolume{},
		MakeMachine{},
		UpdateMachine{},
		AwaitReady{},
		RestartMachine{},
		CordonMachine{},
		UncordonMachine{},
		StopMachine{},
		StartMachine{},
		SetMetadata{},
		DestroyMachine{},
		AwaitProxies{},
		DestroyVolume{},
	}
}

// Is reports whether an action is of type A.
func Is[A Action](do Action) bool {
	_, ok := do.(A)
	return ok
}

// Changes reports whether the step changes a machine that exists before it.
func (s *Step) Changes() bool {
	return (s.Machine != "" || s.MadeBy != nil) && !Is[AwaitReady](s.Do)
}

// Destroys reports whether the step destroys a machine or a volume.
func (s *Step) Destroys() bool { return Is[DestroyMachine](s.Do) || Is[DestroyVolume](s.Do) }

// Final reports whether the step destroys something that existed before the plan, which nothing restores.
func (s *Step) Final() bool { return s.Destroys() && s.MadeBy == nil }

func (s *Step) undoable() bool {
	switch s.Do.(type) {
	case RunCommand, AwaitReady, RestartMachine, AwaitProxies, DestroyMachine, DestroyVolume:
		return false
	}
	return true
}

// Makes returns the config of the machine that the step makes, nil if it makes none.
func (s *Step) Makes() *bourse.Config {
	switch do := s.Do.(type) {
	case RunCommand:
		return do.Config
	case MakeMachine:
		return do.Config
	}
	return nil
}

// Replaces returns the machine whose replacement the step makes, "" if it makes none.
func (s *Step) Replaces() bourse.MachineID {
	if do, ok := s.Do.(MakeMachine); ok {
		return bourse.MachineID(do.Config.Metadata[KeyReplaces])
	}
	return ""
}

// MarshalJSON returns the step with the fields of its action in the same object, and the action's name as "do".
func (s Step) MarshalJSON() ([]byte, error) {
	type fields Step
	step, err := json.Marshal(struct {
		Do string `json:"do"`
		fields
	}{s.Do.String(), fields(s)})
	if err != nil {
		return nil, err
	}
	action, err := json.Marshal(s.Do)
	if err != nil || len(action) == len("{}") {
		return step, err
	}
	return append(append(step[:len(step)-1], ','), action[1:]...), nil
}
