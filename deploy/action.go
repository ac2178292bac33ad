package deploy

import (
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// Action describes what a step does. The types in this file implement it. String returns the action's name, such as
// "create machine".
type Action interface {
	String() string
}

// These actions create a machine or a volume. Undoing a MakeVolume or MakeMachine step destroys the object that the
// step created.
type (
	// RunCommand creates a machine for a command, and waits until the command has exited. It fails unless the exit
	// status is 0. The step cannot be undone.
	RunCommand struct {
		Config  *bourse.Config  `json:"config"`
		Timeout bourse.Duration `json:"timeout,omitempty"` // 0 means the executor's default
	}

	// MakeVolume creates an empty volume, or a fork of another volume.
	MakeVolume struct {
		Name   string          `json:"volume_name"`
		SizeGB int64           `json:"size_gb"`
		Fork   bourse.VolumeID `json:"fork,omitempty"`
		// Machine is the config of the machine that will mount the volume. The volume is created only on a worker
		// that has capacity for that machine.
		Machine *bourse.Config `json:"for,omitempty"`
		// AnyWorker allows the volume to be created on a worker that already has one of
		// the app's volumes with the same name.
		AnyWorker bool `json:"any_worker,omitempty"`
	}

	// MakeMachine creates a machine.
	MakeMachine struct {
		Config   *bourse.Config `json:"config"`
		Stopped  bool           `json:"stopped,omitempty"`  // the machine is created but not started
		Cordoned bool           `json:"cordoned,omitempty"` // the machine is created cordoned (skip_service_registration)
		// Worker is the worker that must run the machine; "" means any. If Worker is set, the plan reserves capacity
		// for the machine on that worker (Plan.Reserve), so the machine's config does not need a requirement for the
		// worker.
		Worker bourse.WorkerID `json:"worker,omitempty"`
		// Volume is the ID of the MakeVolume step that creates the machine's volume. If Volume is set, Config.Mounts[0]
		// does not contain a volume ID.
		Volume *int `json:"volume_of,omitempty"`
		// StandbyOf is the ID of a MakeMachine step. The ID of the machine that this other step creates is appended to
		// Config.Standbys.
		StandbyOf *int `json:"standby_of,omitempty"`
	}
)

// These actions act on the machine identified by Step.Machine or Step.MadeBy.
type (
	// UpdateMachine changes the machine's config to Config. Undoing the step restores Former.
	UpdateMachine struct {
		Config *bourse.Config `json:"config"`
		Former *bourse.Config `json:"former"`
		// Instance is the ID of the machine's version when the plan was made. The update fails if the machine has a
		// different version by then.
		Instance  bourse.InstanceID `json:"instance,omitempty"`
		Stopped   bool              `json:"stopped,omitempty"`    // the machine is not started after the update
		StandbyOf *int              `json:"standby_of,omitempty"` // as in MakeMachine
	}

	// AwaitReady waits until the machine has started and its checks pass. There is nothing
	// to undo.
	AwaitReady struct {
		Timeout bourse.Duration `json:"timeout,omitempty"` // 0 means the executor's default
		Smoke   bool            `json:"smoke,omitempty"`   // fail if the machine exits soon after its start
	}

	// RestartMachine stops and starts the machine. There is nothing to undo.
	RestartMachine struct{}
	// CordonMachine stops proxies from sending requests to the machine.
	CordonMachine struct{}
	// UncordonMachine allows proxies to send requests to the machine again.
	UncordonMachine struct{}
	// StopMachine stops the machine.
	StopMachine struct{}
	// StartMachine starts the machine.
	StartMachine struct{}

	// SetMetadata sets keys of the machine's metadata; an empty value removes a key.
	// Undoing the step restores Former.
	SetMetadata struct {
		Metadata map[string]string `json:"metadata"`
		Former   map[string]string `json:"former"`
	}

	// DestroyMachine destroys the machine. The step cannot be undone. Therefore, unless the plan itself created the
	// machine (Step.MadeBy), only other destroy steps may follow it.
	DestroyMachine struct {
		Volumes []bourse.VolumeID `json:"volumes,omitempty"` // volumes that the machine mounts
	}
)

// These actions do not act on a single machine.
type (
	// AwaitProxies waits until every proxy has received the changes made by all preceding
	// steps. There is nothing to undo.
	AwaitProxies struct{}

	// DestroyVolume destroys a volume. The step cannot be undone, so only other destroy steps may follow it.
	DestroyVolume struct {
		Volume bourse.VolumeID `json:"volume"`
	}
)

func (RunCommand) String() string      { return "run command" }
func (MakeVolume) String() string      { return "create volume" }
func (MakeMachine) String() string     { return "create machine" }
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

// Actions returns one action of each type, with all fields zero.
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

// Changes reports whether the step changes a machine that already exists when the step begins.
func (s *Step) Changes() bool {
	return (s.Machine != "" || s.MadeBy != nil) && !Is[AwaitReady](s.Do)
}

// Destroys reports whether the step destroys a machine or a volume.
func (s *Step) Destroys() bool { return Is[DestroyMachine](s.Do) || Is[DestroyVolume](s.Do) }

// Final reports whether the step destroys something that existed before the plan and
// therefore cannot be restored.
func (s *Step) Final() bool { return s.Destroys() && s.MadeBy == nil }

func (s *Step) undoable() bool {
	switch s.Do.(type) {
	case RunCommand, AwaitReady, RestartMachine, AwaitProxies, DestroyMachine, DestroyVolume:
		return false
	}
	return true
}

// Makes returns the config of the machine that the step creates, or nil if it does not create a machine.
func (s *Step) Makes() *bourse.Config {
	switch do := s.Do.(type) {
	case RunCommand:
		return do.Config
	case MakeMachine:
		return do.Config
	}
	return nil
}

// Replaces returns the ID of the machine that the step's new machine replaces, or "" if the step does not create a
// replacement.
func (s *Step) Replaces() bourse.MachineID {
	if do, ok := s.Do.(MakeMachine); ok {
		return bourse.MachineID(do.Config.Metadata[KeyReplaces])
	}
	return ""
}

// MarshalJSON encodes the step and its action as a single object. The member "do" is the
// action's name.
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
