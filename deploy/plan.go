// Package deploy says what has to be done for an app to be as its owner wants it.
// It is a pure function of what is wanted ([App]) and what is there ([State]). Its result
// is a [Plan], which is data: steps, and which of them must have ended before others begin.
// Strategies, spares, moves and returns to former versions are shapes of plans; package
// deploy/run, which carries them out, knows none of them.
//
// What an interrupted plan has left behind is in the metadata of the machines that it
// made, so that planning again goes on where it was, and nobody keeps anything else.
package deploy

import (
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/release"
)

// State is what is there, as the API says it.
type State struct {
	App      bourse.AppName        `json:"app"`
	Machines []machinesapi.Machine `json:"machines"` // with their configs
	Volumes  []machinesapi.Volume  `json:"volumes,omitempty"`
	// Versions are the former configs of machines, newest first; only plans that return
	// to them need it.
	Versions map[bourse.MachineID][]machinesapi.Version `json:"versions,omitempty"`
}

// Plan is what is to be done.
type Plan struct {
	App     bourse.AppName `json:"app"`
	Release release.ID     `json:"release,omitempty"` // that its machines will be of
	// What is the kind of the plan, for a reader: "rolling", "bluegreen", "scale", "move".
	What string `json:"what,omitempty"`
	// Seen is what is known of each machine that counts.
	Seen  map[bourse.MachineID]Seen `json:"seen,omitempty"`
	Steps []Step                    `json:"steps"`
	// Reserve says that room for all that the steps take is held before the first of them.
	Reserve  bool     `json:"reserve,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // what a reader should know: a machine that is not touched, and why
	Refused  []string `json:"refused,omitempty"`  // what cannot be, and why; a plan that has any is not carried out
}

// Step is one thing to be done. It may begin once all of After have ended well.
type Step struct {
	ID    int           `json:"id"` // its index in the plan
	Do    Act           `json:"do"`
	After []int         `json:"after,omitempty"`
	Group string        `json:"group,omitempty"`
	In    bourse.Region `json:"region,omitempty"`

	// Machine is what it is done to; or, of a machine that a step before this one
	// makes, Of is that step (and Machine is empty).
	Machine bourse.MachineID `json:"machine,omitempty"`
	Of      *int             `json:"of,omitempty"`
	Name    string           `json:"name,omitempty"` // of the machine, to print

	Config *bourse.Config `json:"config,omitempty"` // of MakeMachine, UpdateMachine and RunCommand: the whole of it
	// Former is the config that an UpdateMachine replaces, to return to.
	Former *bourse.Config `json:"former,omitempty"`
	// Instance is the version that the plan was made for; another is refused (current_version).
	Instance bourse.InstanceID `json:"instance,omitempty"`
	Stopped  bool              `json:"stopped,omitempty"` // the machine is not started
	Hidden   bool              `json:"hidden,omitempty"`  // it is made without being served (skip_service_registration)
	// On is the worker that a MakeMachine is for, "" for any: it comes of the plan's reservation
	// (Reserve), so that its config requires nothing of a worker that is to be left again.
	On       bourse.WorkerID `json:"on,omitempty"`
	Volume   *VolumeWant     `json:"volume,omitempty"`    // of MakeVolume
	VolumeOf *int            `json:"volume_of,omitempty"` // the MakeVolume step whose volume the machine mounts: config.mounts[0] has no volume yet
	VolumeID bourse.VolumeID `json:"volume_id,omitempty"` // of DestroyVolume
	// StandbyOf is the MakeMachine step whose machine this one stands by for: its ID
	// is appended to config.standbys of a MakeMachine or UpdateMachine.
	StandbyOf *int            `json:"standby_of,omitempty"`
	Wait      bourse.Duration `json:"wait,omitempty"`  // of AwaitReady and RunCommand: how long it may take; 0: the executor's default
	Smoke     bool            `json:"smoke,omitempty"` // of AwaitReady: a machine that has ended soon after its start has failed
	Why       string          `json:"why"`             // for a reader: "image changed from a to b"
}

// Seen is what is known of a machine when a plan is made. Of a machine that is not what
// was seen the plan does not hold.
type Seen struct {
	Instance bourse.InstanceID `json:"instance"`
	Name     string            `json:"name,omitempty"`
	Worker   bourse.WorkerID   `json:"worker,omitempty"`
	Cordoned bool              `json:"cordoned,omitempty"` // not served
	Lost     bool              `json:"lost,omitempty"`     // its worker does not answer
	Marks    string            `json:"marks,omitempty"`    // see [Marks]
}

// VolumeWant is a volume to be made: empty, or as a fork of another.
type VolumeWant struct {
	Name   string          `json:"name"`
	SizeGB int64           `json:"size_gb"`
	Fork   bourse.VolumeID `json:"fork,omitempty"`
	// AnyWorker says that it may be on a worker that has another volume of the app with
	// this name.
	AnyWorker bool `json:"any_worker,omitempty"`
}

// Act is what a step does.
type Act string

// The acts. What undoes one is in parentheses; [Plan.Undoable] says what is undone.
const (
	RunCommand      Act = "run command"      // a machine of its own, which ends with 0 (nothing)
	MakeVolume      Act = "make volume"      // (destroy it)
	MakeMachine     Act = "make machine"     // (destroy it)
	UpdateMachine   Act = "update machine"   // (update it to Former)
	AwaitReady      Act = "await ready"      // started, its smoke and health checks pass (nothing)
	RestartMachine  Act = "restart machine"  // (nothing)
	UncordonMachine Act = "uncordon machine" // (cordon it)
	CordonMachine   Act = "cordon machine"   // (uncordon it)
	AwaitProxies    Act = "await proxies"    // every proxy has heard of what was done before (nothing)
	StopMachine     Act = "stop machine"     // (start it)
	StartMachine    Act = "start machine"    // (stop it)
	SetMetadata     Act = "set metadata"     // Config.Metadata, member by member; an empty value removes (as it was in Former.Metadata)
	DestroyMachine  Act = "destroy machine"  // nothing returns it: only other destroys are after it, unless the plan made it itself (Of)
	DestroyVolume   Act = "destroy volume"   // likewise
)

// Metadata of machines that plans make. The first four are those of other clients of the API.
const (
	KeyPlatform = "fly_platform_version" // "v2": a deploy looks after the machine
	KeyGroup    = "fly_process_group"
	KeyRelease  = "fly_release_id"
	KeyVersion  = "fly_release_version"
	KeyCanary   = "fly_canary"            // "true": one that tries a release, and goes again
	KeyReplaces = bourse.MetadataReplaces // the machine whose place it takes: while that exists, the two count as one
	KeyPaused   = "bourse_paused"         // "true": a plan takes it away, and has not ended: it may be cordoned and stopped for that
)

// Platform is the value of KeyPlatform of machines that a deploy looks after.
const Platform = "v2"

// CommandGroup is the group of machines that run a release command, of no other.
const CommandGroup = "fly_app_release_command"

// VolumesLeft returns the volumes of the machines that the plan destroys, but for those
// that it destroys too: no machine has them then, and they keep what is on them. done
// reports whether a step was done; nil means that all are.
func (p *Plan) VolumesLeft(done func(step int) bool) []bourse.VolumeID {
	var out, gone []bourse.VolumeID
	for i := range p.Steps {
		s := &p.Steps[i]
		switch {
		case done != nil && !done(i):
		case s.Do == DestroyVolume:
			gone = append(gone, s.VolumeID)
		case s.Do == DestroyMachine && s.Former != nil:
			for _, m := range s.Former.Mounts {
				out = append(out, m.Volume)
			}
		}
	}
	return slices.DeleteFunc(out, func(id bourse.VolumeID) bool { return slices.Contains(gone, id) })
}

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
